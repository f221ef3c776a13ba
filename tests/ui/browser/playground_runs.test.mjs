// The playground in Chromium: live output, reload, cancel, the page of a job, code, chat, several models, many tabs.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import { assertAccessible, assertNoSidewaysScroll, browserTest, PHONE, url, variable } from './browser.mjs';
import { chat, field, kinds, many, run, status } from './playground_page.mjs';

browserTest('output appears while the model runs, and a reload attaches again', {}, async (page) => {
  const gate = variable('GATES') + '/stream';
  await page.goto(many);
  await field(page, 'gate').fill(gate);
  await field(page, 'hold_at').fill('2');
  await page.keyboard.press('Control+Enter');
  await page.locator('.run-panel').getByText('1:xxxxxxxx').waitFor();
  await status(page, 'processing');
  await page.reload();
  await page.locator('.run-panel').getByText('1:xxxxxxxx').waitFor();
  assert.equal(await field(page, 'gate').inputValue(), gate);
  assert.equal(await page.locator('.run-panel').getByText('2:xxxxxxxx').count(), 0);
  fs.writeFileSync(gate, '');
  await status(page, 'succeeded');
  await page.locator('.run-panel').getByText('2:xxxxxxxx').waitFor();
});

browserTest('a hidden tab drops its stream and resumes it', {}, async (page) => {
  const gate = variable('GATES') + '/hidden';
  const show = (/** @type {boolean} */ visible) => page.evaluate((/** @type {boolean} */ shown) => {
    Object.defineProperty(document, 'hidden', { value: !shown, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  }, visible);
  const isStream = (/** @type {any} */ message) => message.url().endsWith('/events');
  await page.goto(many);
  await field(page, 'gate').fill(gate);
  await field(page, 'hold_at').fill('2');
  const opened = page.waitForResponse(isStream);
  await page.keyboard.press('Control+Enter');
  await page.locator('.run-panel').getByText('1:xxxxxxxx').waitFor();
  await opened;
  // The text may be that of the job's document. A stream that had no event yet resumes from the start.
  /** @type {string | undefined} */
  let lastEventId;
  for (let tries = 0; lastEventId === undefined && tries < 20; tries += 1) {
    const dropped = page.waitForEvent('requestfailed', isStream);
    await show(false);
    await dropped;
    const resumed = page.waitForRequest(isStream);
    const answered = page.waitForResponse(isStream);
    await show(true);
    lastEventId = (await resumed).headers()['last-event-id'];
    await answered;
  }
  assert.ok(lastEventId, 'the stream resumes after the last event');
  fs.writeFileSync(gate, '');
  await status(page, 'succeeded');
  assert.deepEqual(await page.locator('.item-text').allInnerTexts(), ['0:xxxxxxxx', '1:xxxxxxxx', '2:xxxxxxxx']);
});

browserTest('Escape cancels the run', {}, async (page) => {
  await page.goto(kinds);
  await field(page, 'gate').fill('/nonexistent/gate');
  await page.keyboard.press('Control+Enter');
  await status(page, 'processing');
  await page.keyboard.press('Escape');
  await status(page, 'canceled');
  await page.getByRole('tab', { name: 'Logs' }).click();
  const logs = page.getByRole('region', { name: 'Logs' });
  await logs.getByText('title is').waitFor();
  assert.match(await logs.innerText(), /^title is .*\nall 100 %\s*$/, 'only the last frame of a progress bar, without colours');
});

browserTest('the page of a job, and running it again', {}, async (page) => {
  await page.goto(kinds);
  await field(page, 'title').fill('again');
  await run(page);
  await page.locator('.job-link').click();
  await page.getByRole('heading', { level: 1 }).waitFor();
  const first = new URL(page.url()).pathname;
  assert.match(first, /\/ui\/jobs\/\w+$/);
  await page.getByRole('region', { name: 'input' }).getByText('again').waitFor();
  await assertAccessible(page);
  await page.getByRole('button', { name: 'Run again' }).click();
  await page.waitForFunction((path) => location.pathname !== path, first);
  await page.locator('.job-head .badge', { hasText: 'succeeded' }).waitFor();
  await page.getByRole('button', { name: 'Open in playground' }).click();
  await page.getByText('The inputs come from a link').waitFor();
  assert.equal(await field(page, 'title').inputValue(), 'again');
  assert.equal(await page.locator('.run-head').count(), 0, 'a link must not run the model');
  await field(page, 'key').fill('s3cret');
  await run(page);
  await page.locator('.job-link').click();
  await page.getByRole('button', { name: 'Run again' }).click();
  await page.getByText('The job was not run again').waitFor();
  await page.getByText('It does not have key:').waitFor();
  assert.equal(await field(page, 'title').inputValue(), 'again');
});

browserTest('code of the same request runs when it is pasted', {}, async (page) => {
  const title = `it's "$HOME" \\ \`id\` ü\n`;
  await page.goto(kinds);
  await page.getByRole('button', { name: 'JSON', exact: true }).click();
  await page.getByLabel('Input as JSON').fill(JSON.stringify({ title, words: ['a', '${b}'] }));
  await page.getByRole('tab', { name: 'Code' }).click();
  /** @type {Record<string, (code: string) => string>} */
  const programs = {
    curl: (code) => Object.values(JSON.parse(execute('bash', ['-c', code])).output).join(),
    Python: (code) => execute(variable('PYTHON'), ['-c', code]),
    'Python (replicate)': (code) => execute(variable('PYTHON'), ['-c', code]),
    JavaScript: (code) => execute('node', ['--input-type=module', '-e', code]),
  };
  for (const [language, output] of Object.entries(programs)) {
    await page.getByRole('button', { name: language, exact: true }).click();
    const code = await page.getByRole('region', { name: `${language} code` }).innerText();
    assert.match(code, /TIDEGATE_API_TOKEN/);
    const printed = output(code);
    for (const text of ['"$HOME"', '`id`', 'ü', '${b}']) assert.ok(printed.includes(text), `${language}: ${printed}`);
  }
});

/** @param {string} program @param {string[]} args */
function execute(program, args) {
  return execFileSync(program, args, { encoding: 'utf8', timeout: 20_000 });
}

browserTest('a conversation with a chat model', {}, async (page) => {
  const gate = variable('GATES') + '/chat';
  await page.goto(chat);
  await page.getByRole('button', { name: 'Chat', exact: true }).click();
  await page.getByLabel('Temperature').fill('hot');
  await page.getByLabel('Message', { exact: true }).fill(`**bold** <b>raw</b> hold=${gate}`);
  await page.keyboard.press('Enter');
  await page.getByText('Enter a number.').waitFor();
  assert.equal(await page.locator('.message').count(), 0);
  await page.getByLabel('Temperature').fill('0.5');
  await page.getByLabel('Message', { exact: true }).press('Enter');
  await page.locator('.message.assistant').getByText('**bold**').waitFor();
  fs.writeFileSync(gate, '');
  await page.locator('.message.assistant strong', { hasText: 'bold' }).waitFor();
  await page.locator('.message.assistant').getByText('<b>raw</b>').waitFor();
  await page.getByRole('button', { name: 'Code' }).click();
  await page.getByRole('button', { name: 'Python (openai)' }).click();
  const code = await page.getByRole('region', { name: 'Python (openai) code' }).innerText();
  assert.match(code, /"\*\*bold\*\* <b>raw.*temperature=0\.5/s);
  assert.doesNotMatch(code, /assistant/);
  await assertAccessible(page);
  await page.getByLabel('Message', { exact: true }).fill('hold=/nonexistent/gate more words');
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.getByRole('button', { name: 'Send' }).waitFor();
});

browserTest('several models are found by search', {}, async (page) => {
  await page.goto(`${url}/ui/`);
  await page.getByRole('heading', { name: 'Models' }).waitFor();
  await page.getByLabel('Search models').fill('kinds');
  assert.deepEqual(await page.locator('.model-name').allInnerTexts(), ['local/ui_kinds']);
  await assertAccessible(page);
  await page.getByText('local/ui_kinds').click();
  await field(page, 'title').waitFor();
});

browserTest('the playground fits a phone', { viewport: PHONE, scheme: 'dark' }, async (page) => {
  await page.goto(kinds);
  await field(page, 'title').waitFor();
  await assertNoSidewaysScroll(page);
  await page.getByRole('button', { name: /^Run/ }).click();
  await status(page, 'succeeded');
  await assertNoSidewaysScroll(page);
  await assertAccessible(page);
  await page.goto(chat);
  await page.getByRole('button', { name: 'Chat', exact: true }).click();
  await assertNoSidewaysScroll(page);
});

browserTest('eight tabs work on six connections', {}, async (page, context) => {
  const gate = variable('GATES') + '/tabs';
  const tabs = [page, ...await Promise.all(Array.from({ length: 7 }, () => context.newPage()))];
  await Promise.all(tabs.map(async (tab) => {
    tab.setDefaultTimeout(30_000);
    await tab.goto(many);
    await field(tab, 'gate').fill(gate);
    await field(tab, 'hold_at').fill('1');
    await tab.keyboard.press('Control+Enter');
  }));
  await Promise.all(tabs.map((tab) => tab.locator('.run-head .badge').waitFor()));
  fs.writeFileSync(gate, '');
  await Promise.all(tabs.map((tab) => status(tab, 'succeeded')));
});
