// Hostile output, logs, errors and descriptions: nothing runs, nothing is loaded from another host, and
// no document opens.

import assert from 'node:assert/strict';
import { browserTest, url } from './browser.mjs';

const model = `${url}/ui/models/local/ui_attacks`;

/** Runs one attack and waits for its end. */
async function attack(/** @type {any} */ page, /** @type {string} */ name, /** @type {string} */ end = 'succeeded') {
  await page.goto(model);
  await page.locator('#input-attack').fill(name);
  await page.keyboard.press('Control+Enter');
  await page.locator('.run-head .badge', { hasText: end }).waitFor();
  const [elements, title] = await page.evaluate(() => [document.querySelectorAll('iframe, object, embed, script:not([src]), [onerror], [onload]').length, document.title]);
  assert.deepEqual([elements, title.includes('attacked')], [0, false], name);
}

for (const name of ['script', 'markup', 'javascript_url', 'object', 'nested', 'control', 'remote_image', 'remote_list']) {
  browserTest(`output: ${name}`, {}, async (page) => {
    await attack(page, name);
    const links = await page.locator('.run-panel .tab-panel a').evaluateAll((/** @type {any[]} */ found) => found.map((link) => link.protocol));
    assert.ok(links.every((/** @type {string} */ protocol) => ['http:', 'https:'].includes(protocol)), String(links));
    assert.equal(await page.locator('.run-panel .tab-panel img').count(), 0);
  });
}

browserTest('output: Markdown', {}, async (page) => {
  await attack(page, 'markdown');
  await page.getByLabel('Markdown').check();
  await page.locator('.markdown').waitFor();
  const links = await page.locator('.markdown a').evaluateAll((/** @type {any[]} */ found) => found.map((link) => link.getAttribute('href')));
  assert.deepEqual(links, ['https://attacker.example/pixel.png', 'https://example.com/ok']);
  assert.equal(await page.locator('.markdown img, .markdown iframe, .markdown script').count(), 0);
  assert.equal(await page.title().then((/** @type {string} */ title) => title.includes('attacked')), false);
});

for (const name of ['svg', 'svg_path']) {
  browserTest(`output: ${name} is shown only as an image`, {}, async (page) => {
    await attack(page, name);
    await page.getByRole('img', { name: /^Output/ }).waitFor();
    assert.equal(await page.locator('.run-panel svg script').count(), 0);
  });
}

for (const name of ['html_file', 'xhtml_file', 'html_path']) {
  browserTest(`output: ${name} is downloaded, never opened`, {}, async (page, context) => {
    await attack(page, name);
    const downloading = page.waitForEvent('download');
    await page.getByRole('button', { name: /^Download/ }).click();
    const download = await downloading;
    assert.match(download.url(), /^blob:/);
    assert.equal(context.pages().length, 1);
    assert.match(page.url(), /\/ui\/models\//);
  });
}

browserTest('output: a page that claims to be a PNG', {}, async (page) => {
  await attack(page, 'fake_png');
  await page.getByText('no preview').waitFor();
});

browserTest('output: a very long text', {}, async (page) => {
  await attack(page, 'long');
  const length = await page.locator('.text-box').evaluate((/** @type {HTMLElement} */ box) => box.textContent?.length);
  assert.equal(length, 200_000);
});

browserTest('logs', {}, async (page) => {
  await attack(page, 'logs');
  await page.getByRole('tab', { name: 'Logs' }).click();
  await page.getByRole('region', { name: 'Logs' }).getByText('<script>').first().waitFor();
  assert.equal(await page.locator('.log img, .log script').count(), 0);
});

browserTest('an error', {}, async (page) => {
  await attack(page, 'error', 'failed');
  await page.getByRole('alert').getByText('<script>').waitFor();
  assert.equal(await page.locator('.note img').count(), 0);
});

browserTest('a metric', {}, async (page) => {
  await attack(page, 'metric');
  await page.getByRole('tab', { name: 'Metrics' }).click();
  await page.getByRole('cell', { name: '<img' }).waitFor();
});

browserTest('a description and a link', {}, async (page) => {
  await page.goto(`${model}#input=${encodeURIComponent(JSON.stringify({ attack: "<img src=x onerror=alert(1)>", '<b>extra</b>': 1 }))}`);
  await page.locator('#input-attack-hint', { hasText: '<img' }).waitFor();
  await page.getByText('Also sent, see JSON: <b>extra</b>').waitFor();
  assert.equal(await page.locator('.form-card img').count(), 0);
});

browserTest('the policy forbids inline script and foreign requests', { allowed: [/Content Security Policy|Content-Security-Policy|Trusted(HTML|Script)|Refused/] }, async (page) => {
  await page.goto(model);
  await page.locator('#input-attack').waitFor();
  const results = await page.evaluate(async () => {
    const script = document.createElement('script');
    let trusted = 'set';
    try {
      script.text = "document.title = 'attacked'";
    } catch (error) {
      trusted = /** @type {Error} */ (error).name;
    }
    document.head.append(script);
    let markup = 'set';
    try {
      document.createElement('div').innerHTML = '<b>x</b>';
    } catch (error) {
      markup = /** @type {Error} */ (error).name;
    }
    const fetched = await fetch('https://attacker.example/').then(() => 'fetched', () => 'refused');
    return { trusted, markup, fetched, title: document.title };
  });
  assert.equal(results.markup, 'TypeError');
  assert.equal(results.trusted, 'TypeError');
  assert.equal(results.fetched, 'refused');
  assert.doesNotMatch(results.title, /attacked/);
});
