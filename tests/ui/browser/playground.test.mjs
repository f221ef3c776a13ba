// The playground in Chromium: a prediction with each kind of input, streams, cancel, reload, files,
// errors of fields, links, chat and several models.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import { assertAccessible, assertNoSidewaysScroll, browserTest, call, PHONE, url, variable } from './browser.mjs';

const kinds = `${url}/ui/models/local/ui_kinds`;
const many = `${url}/ui/models/local/many`;
const chat = `${url}/ui/models/local/chat_words`;

/** The panel shows this status. */
const status = (/** @type {any} */ page, /** @type {string} */ name) => page.locator('.run-head .badge', { hasText: name }).waitFor();

/** Runs the form and waits for its end. */
async function run(/** @type {any} */ page, /** @type {string} */ end = 'succeeded') {
  await page.getByRole('form', { name: 'Input' }).waitFor();
  await page.keyboard.press('Control+Enter');
  await status(page, end);
}

/** The output of the run that the page shows, as the server's API has it. */
async function outputOf(/** @type {any} */ page) {
  await page.getByRole('tab', { name: 'Raw' }).click();
  const text = await page.getByRole('region', { name: 'answer' }).innerText();
  return JSON.parse(text).output;
}

const field = (/** @type {any} */ page, /** @type {string} */ name) => page.locator(`#input-${name}`);

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
