// The playground in Chromium: each kind of input, errors at inputs, JSON mode, links, and files in and out.

import assert from 'node:assert/strict';
import fs from 'node:fs';
import { assertAccessible, browserTest, call, url } from './browser.mjs';
import { field, kinds, outputOf, run, status } from './playground_page.mjs';

browserTest('a prediction with each kind of input', {}, async (page) => {
  await page.goto(kinds);
  await field(page, 'title').fill('A "title" with \\ and \'quotes\'');
  await field(page, 'prompt').fill('one\ntwo');
  await field(page, 'steps').fill('7');
  await page.getByLabel('Ratio, slider').fill('0.25');
  await field(page, 'seed').fill('9007199254740993');
  await field(page, 'sharp').check();
  await field(page, 'style').selectOption({ label: 'bold' });
  await field(page, 'key').fill('s3cret');
  await page.locator('input[type=file][data-input=image]').setInputFiles({ name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('tide') });
  await page.locator('[data-field=words]').getByRole('button', { name: 'Add entry' }).click();
  await field(page, 'words').fill('first');
  await page.locator('[data-field=words]').getByRole('button', { name: 'Add entry' }).click();
  await page.getByLabel('Words 2').fill('second');
  await field(page, 'options').fill('{"deep": [1, null, true]}');
  await field(page, 'suffix').fill('');
  await run(page);
  assert.deepEqual(await outputOf(page), {
    title: 'A "title" with \\ and \'quotes\'', prompt: 'one\ntwo', steps: 7, ratio: 0.25, seed: Number('9007199254740993'), sharp: true, style: 'bold', key: 's3cret', image: 'tide',
    words: ['first', 'second'], options: { deep: [1, null, true] }, suffix: '',
  });
  const { id } = await call('v1/predictions').then(({ results }) => results[0]);
  const sent = await (await fetch(`${url}/ui/api/jobs/~/${id}`)).text();
  assert.match(sent, /"seed":9007199254740993,/, 'a number of JavaScript does not hold it');
  await assertAccessible(page);
});

browserTest('the first run succeeds untouched and sends only what is set', {}, async (page) => {
  await page.goto(kinds);
  await run(page);
  const output = await outputOf(page);
  assert.deepEqual([output.prompt, output.suffix, output.seed], ['several\nlines', '!', null]);
  const request = await page.getByRole('region', { name: 'request' }).innerText();
  assert.deepEqual(Object.keys(JSON.parse(request.slice(request.indexOf('{'))).input), ['title']);
});

browserTest('a message of the server is shown at its field', { allowed: [/status of 422/] }, async (page) => {
  await page.goto(kinds);
  await field(page, 'steps').fill('99');
  await page.keyboard.press('Control+Enter');
  await page.locator('#input-steps-error', { hasText: '10' }).waitFor();
  assert.equal(await field(page, 'steps').getAttribute('aria-invalid'), 'true');
  assert.equal(await page.evaluate(() => document.activeElement?.id), 'input-steps');
  await assertAccessible(page);
  await page.getByRole('button', { name: 'JSON', exact: true }).click();
  await page.getByLabel('Input as JSON').fill('{"words": ["x", 1]}');
  await page.getByRole('form').getByRole('button', { name: 'Form', exact: true }).click();
  await page.keyboard.press('Control+Enter');
  await page.locator('#input-title-error', { hasText: 'title is required' }).waitFor();
  await page.locator('#input-words-error', { hasText: 'entry 2' }).waitFor();
  await page.getByText('2 inputs are not valid.').waitFor();
});

browserTest('JSON mode edits the same values', {}, async (page) => {
  await page.goto(kinds);
  await field(page, 'title').fill('from the form');
  await page.getByRole('button', { name: 'JSON', exact: true }).click();
  const text = page.getByLabel('Input as JSON');
  assert.deepEqual(JSON.parse(await text.inputValue()), { title: 'from the form' });
  await text.fill('{"title": "x", ');
  await page.locator('#input-json-error', { hasText: 'Not valid JSON' }).waitFor();
  await page.getByRole('form').getByRole('button', { name: 'Form', exact: true }).click();
  await page.getByText('The JSON is not valid. Correct it first').waitFor();
  assert.equal(await text.inputValue(), '{"title": "x", ');
  await text.fill('{"title": "from JSON", "steps": 2}');
  await page.getByRole('form').getByRole('button', { name: 'Form', exact: true }).click();
  assert.equal(await field(page, 'steps').inputValue(), '2');
  await page.getByRole('button', { name: 'Unset Steps' }).click();
  const steps = field(page, 'steps');
  assert.equal(await steps.inputValue(), '4');
  await steps.fill('');
  assert.deepEqual([await steps.inputValue(), await steps.getAttribute('placeholder')], ['', '4']);
  await page.keyboard.type('1');
  assert.equal(await steps.inputValue(), '1');
  await steps.fill('');
  await steps.blur();
  assert.equal(await steps.inputValue(), '4');
});

browserTest('a message of the server about an input is shown in JSON mode', { allowed: [/status of 422/] }, async (page) => {
  await page.goto(kinds);
  await page.getByRole('button', { name: 'JSON', exact: true }).click();
  await page.getByLabel('Input as JSON').fill('{"title": "x", "steps": 99}');
  await page.keyboard.press('Control+Enter');
  await page.getByRole('form').getByRole('alert').filter({ hasText: /steps: 99 is greater than/ }).waitFor();
});

browserTest('links carry no secrets and no files', {}, async (page, context) => {
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.goto(kinds);
  await field(page, 'title').fill('#shared & "quoted"');
  await field(page, 'key').fill('s3cret');
  await field(page, 'image').fill('https://files.example/private');
  await page.getByRole('button', { name: 'Copy link' }).click();
  await page.getByText('Link copied, without key, image').waitFor();
  const link = await page.evaluate(() => navigator.clipboard.readText());
  assert.doesNotMatch(decodeURIComponent(link), /s3cret|private/);
  await page.goto('about:blank');
  await page.goto(link);
  assert.equal(await field(page, 'title').inputValue(), '#shared & "quoted"');
  assert.equal(await field(page, 'key').inputValue(), '');
});

browserTest('a large file is uploaded, and a file of the output is downloaded', {}, async (page) => {
  await page.goto(`${url}/ui/models/local/files`);
  const text = 'tide '.repeat(80_000);
  await page.locator('input[type=file][data-input=text]').setInputFiles({ name: 'large.txt', mimeType: 'text/plain', buffer: Buffer.from(text) });
  await run(page);
  await page.getByRole('img', { name: 'Output chart' }).waitFor();
  const downloading = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Download counts.json' }).click();
  const download = await downloading;
  assert.equal(download.suggestedFilename(), 'counts.json');
  assert.deepEqual(JSON.parse(fs.readFileSync(await download.path(), 'utf8')), { tide: 80_000 });
});

browserTest('a file is dropped and pasted, with a preview', {}, async (page) => {
  await page.goto(kinds);
  await field(page, 'image').waitFor();
  const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
  const send = (/** @type {string} */ kind) => page.evaluate(dispatchFile, [kind, png]);
  await send('drop');
  await page.getByText('drop.png').waitFor();
  await page.getByRole('img', { name: 'Preview of Image' }).waitFor();
  await page.getByRole('button', { name: 'Remove drop.png' }).click();
  await send('paste');
  await page.getByText('paste.png').waitFor();
  await send('replace');
  await page.getByText('The file was not pasted').waitFor();
  assert.equal(await page.getByText('replace.png').count(), 0);
  await page.getByRole('button', { name: 'Remove paste.png' }).click();
  assert.equal(await send('text'), true, 'the browser pastes the text');
  assert.equal(await page.getByText('text.png').count(), 0);
});

/** Runs in the page: drops or pastes a file. Returns whether the browser does what it does without the page. */
function dispatchFile(/** @type {[string, string]} */ [kind, data]) {
  const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], `${kind}.png`, { type: 'image/png' }));
  const options = { bubbles: true, cancelable: true };
  if (kind === 'drop') return document.querySelector('[data-field=image] .file-control')?.dispatchEvent(new DragEvent('drop', { dataTransfer: transfer, ...options }));
  if (kind === 'text') transfer.setData('text/plain', 'cells of a table');
  const target = kind === 'text' ? document.getElementById('input-prompt') : document;
  return target?.dispatchEvent(new ClipboardEvent('paste', { clipboardData: transfer, ...options }));
}

browserTest('a gallery of images, a recording, and a clip', {}, async (page) => {
  await page.goto(`${url}/ui/models/local/ui_media`);
  await run(page);
  await page.waitForFunction(() => {
    const images = [...document.querySelectorAll('.gallery img')];
    return images.length === 3 && images.every((image) => /** @type {HTMLImageElement} */ (image).naturalWidth === 160);
  });
  await field(page, 'kind').selectOption({ label: 'recording' });
  await page.keyboard.press('Control+Enter');
  await page.waitForFunction(() => /** @type {HTMLAudioElement | null} */ (document.querySelector('.file-audio audio'))?.duration === 1);
  await field(page, 'kind').selectOption({ label: 'clip' });
  await page.keyboard.press('Control+Enter');
  await page.waitForFunction(() => /** @type {HTMLVideoElement | null} */ (document.querySelector('.file-video video'))?.videoWidth === 32);
  await assertAccessible(page);
});
