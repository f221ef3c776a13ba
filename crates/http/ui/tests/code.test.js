import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import vm from 'node:vm';
import { ExactInteger } from '../lib/exact_json.js';
import { lastRequest, optionsOf } from '../playground/chat/conversation.js';
import { javascript, python, shell } from '../playground/code/quote.js';
import { samplesOf } from '../playground/code/samples.js';
import { LocalFile } from '../playground/inputs/values.js';

// Texts that leave a literal, expand a variable or change a line, if a language's quoting is wrong.
const HOSTILE = {
  quotes: `'"\`''""`,
  backslashes: '\\ \\\\ \\n \\\' \\" \\u0041 \\',
  lines: 'a\nb\r\nc\td\u2028e\u2029f\u0085g',
  shell: '$HOME $(id) `id` ${x} !! ~ * & ; | > #',
  templates: '${1+1} {x} {{y}} %s %(a)s f"{1}"',
  html: '</script><!-- <script>alert(1)</script>',
  unicode: 'ü 漢 🌊 \u202e \ufeff \u200b',
  control: '\u0000\u0001\u001b[31m\u007f',
  numbers: [0, -1.5, 1e21, 1e-7],
  nested: { '': null, "key'\"\\": [true, false, {}], __proto__x: [] },
  "it's": 'x',
};
Object.defineProperty(HOSTILE, '__proto__', { value: 'own', enumerable: true });

/** @param {string} program @param {string[]} args @param {object} [options] */
function run(program, args, options = {}) {
  return execFileSync(program, args, { encoding: 'utf8', ...options });
}

test('a shell reads the same text', () => {
  const text = JSON.stringify(HOSTILE);
  assert.equal(run('bash', ['-c', `printf %s ${shell(text)}`]), text);
  assert.equal(run('sh', ['-c', `printf %s ${shell(text)}`]), text);
});

test('Python reads the same value', () => {
  const code = `import json\nprint(json.dumps(${python(HOSTILE)}))`;
  assert.deepEqual(JSON.parse(run('python3', ['-'], { input: code })), JSON.parse(JSON.stringify(HOSTILE)));
});

test('a single surrogate is a value of Python', () => {
  const code = `import json\nprint(json.dumps(${python('\ud800')}))`;
  assert.equal(JSON.parse(run('python3', ['-'], { input: code })), '\ud800');
});

test('JavaScript reads the same value', () => {
  const value = vm.runInNewContext(`JSON.stringify(${javascript(HOSTILE)})`);
  assert.deepEqual(JSON.parse(value), JSON.parse(JSON.stringify(HOSTILE)));
});

/**
 * @param {Partial<import('../playground/code/samples.js').SampleRequest>} [change]
 * @returns {import('../playground/code/samples.js').SampleRequest}
 */
function request(change) {
  return {
    root: 'http://localhost:5000/prefix/', model: 'owner/name', run: { path: 'v1/models/owner/name/predictions', style: 'replicate' },
    values: HOSTILE, apis: ['replicate'], chat: false, conversation: null, ...change,
  };
}

test('curl sends the body that the playground sends', () => {
  const text = samplesOf(request())[0].text;
  const arguments_ = run('bash', ['-c', `curl() { printf '%s\\0' "$@"; }\nTIDEGATE_API_TOKEN=t\n${text}`]).split('\0');
  assert.ok(arguments_.includes('http://localhost:5000/prefix/v1/models/owner/name/predictions'));
  assert.ok(arguments_.includes('Authorization: Bearer t'));
  assert.deepEqual(JSON.parse(arguments_[arguments_.indexOf('-d') + 1]), { input: JSON.parse(JSON.stringify(HOSTILE)) });
});

test('curl reads a file with a hostile name', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tidegate-ui-'));
  const name = "it's $(touch x) \"q\".txt";
  writeFileSync(join(folder, name), 'tide');
  const values = { image: new LocalFile(new File(['tide'], name, { type: 'text/plain' })), text: 'FILE0. FILE' };
  const text = samplesOf(request({ values }))[0].text;
  const body = run('bash', ['-c', `curl() { cat; }\n${text}`], { cwd: folder });
  assert.deepEqual(JSON.parse(body), { input: { image: 'data:text/plain;base64,dGlkZQ==', text: 'FILE0. FILE' } });
  rmSync(folder, { recursive: true });
});

const PYTHON_SAMPLES = [
  request(),
  request({ run: { path: 'v2/name/run', style: 'runpod' }, model: 'name' }),
  request({ values: { image: new LocalFile(new File(['x'], 'a"b.png')) } }),
  request({ values: { image: new LocalFile(new File(['x'], 'a"b.png')) }, run: { path: 'v2/name/run', style: 'runpod' } }),
  request({ values: { prompt: HOSTILE.quotes + HOSTILE.lines }, chat: true, apis: ['openai'] }),
  request({ conversation: { messages: [{ role: 'user', content: HOSTILE.quotes + HOSTILE.backslashes }], options: { temperature: 0.5 } } }),
  request({ run: { path: 'v1/models/owner/name/versions/abc/trainings', style: 'replicate', fields: { destination: 'me/mine' } } }),
];

test('each sample of Python compiles', () => {
  for (const sample of PYTHON_SAMPLES.flatMap(samplesOf)) {
    if (!sample.id.match(/^(python|replicate|runpod|openai)$/)) continue;
    run('python3', ['-c', 'import sys; compile(sys.stdin.read(), "sample", "exec")'], { input: sample.text });
    assert.match(sample.text, /TIDEGATE_API_TOKEN/);
  }
});

test('each sample of JavaScript compiles', () => {
  for (const sample of PYTHON_SAMPLES.flatMap(samplesOf)) {
    if (!sample.id.match(/^(javascript|.*-js)$/)) continue;
    run('node', ['--input-type=module', '--check', '-'], { input: sample.text });
    assert.match(sample.text, /TIDEGATE_API_TOKEN/);
  }
});

test('each style has the clients of its API', () => {
  const ids = (/** @type {any} */ change) => samplesOf(request(change)).map((sample) => sample.id);
  assert.deepEqual(ids({}), ['curl', 'replicate', 'replicate-js', 'python', 'javascript']);
  assert.deepEqual(ids({ run: { path: 'v2/name/run', style: 'runpod' } }), ['curl', 'runpod', 'python', 'javascript']);
  assert.deepEqual(ids({ run: { path: 'predictions', style: 'cog' } }), ['curl', 'python', 'javascript']);
  assert.deepEqual(ids({ chat: true, apis: ['openai'] }), ['curl', 'replicate', 'replicate-js', 'openai', 'python', 'javascript']);
  assert.deepEqual(ids({ conversation: { messages: [], options: {} } }), ['curl', 'openai', 'openai-js', 'python', 'javascript']);
});

test('the samples of another version, and of a training, name it', () => {
  const version = samplesOf(request({ run: { path: 'v1/predictions', style: 'replicate', fields: { version: 'abc' } }, values: { x: 1 } }));
  assert.match(version[0].text, /v1\/predictions.*"version":"abc","input":\{"x":1\}/s);
  assert.match(version[1].text, /"owner\/name:abc"/);
  const training = samplesOf(request({ run: { path: 'v1/models/owner/name/versions/abc/trainings', style: 'replicate', fields: { destination: 'me/mine' } }, values: { x: 1 } }));
  assert.deepEqual(training.map(({ id }) => id), ['curl', 'replicate']);
  assert.match(training[1].text, /version="abc".*destination="me\/mine"/s);
});

test('the samples of a training create its destination first', () => {
  const [curl, client] = samplesOf(request({ run: { path: 'v1/models/owner/name/versions/abc/trainings', style: 'replicate', fields: { destination: 'me/mine' } }, values: { x: 1 } }));
  const sent = run('bash', ['-c', `curl() { printf '%s\\n' "$2" "\${@: -1}"; }\n${curl.text}`]).trim().split('\n');
  assert.deepEqual(sent.map((line) => (line.startsWith('{') ? JSON.parse(line) : line.replace(/^.*\/v1/, 'v1'))), [
    'v1/models', { owner: 'me', name: 'mine', visibility: 'private', hardware: 'local' },
    'v1/models/owner/name/versions/abc/trainings', { destination: 'me/mine', input: { x: 1 } },
  ]);
  assert.match(client.text, /models\.create\(\s+"me", "mine".*trainings\.create/s);
});

test('the samples of a chat have its messages and options', () => {
  const { options } = optionsOf({ temperature: '0.5', max_tokens: '7' });
  const said = lastRequest(/** @type {any} */ ([{ role: 'user', content: 'a' }, { role: 'assistant', content: 'b' }, { role: 'user', content: 'c' }, { role: 'assistant', content: 'd' }]));
  const samples = samplesOf(request({ conversation: { messages: said, options } }));
  for (const { text } of samples) assert.match(text, /"?temperature"?[=:]\s*0\.5.*"?max_tokens"?[=:]\s*7/s);
  assert.deepEqual(said.map(({ content }) => content), ['a', 'b', 'c']);
  assert.deepEqual(lastRequest([{ role: 'system', content: 's' }]).map(({ role }) => role), ['system', 'user']);
  const [openai] = samplesOf(request({ chat: true, apis: ['openai'], values: { prompt: 'p', max_tokens: 7 } })).filter(({ id }) => id === 'openai');
  assert.match(openai.text, /max_tokens=7/);
});

test('options that are no numbers are errors', () => {
  assert.deepEqual(optionsOf({ temperature: '', max_tokens: ' ' }), { options: {}, errors: {} });
  assert.deepEqual(Object.keys(optionsOf({ temperature: 'hot', max_tokens: '1.5' }).errors), ['temperature', 'max_tokens']);
});

test('the samples have the digits of large integers', () => {
  const [curl, , , python, javascript] = samplesOf(request({ values: { seed: new ExactInteger('9007199254740993') } }));
  assert.match(curl.text, /"seed":9007199254740993\}/);
  assert.match(python.text, /"seed": 9007199254740993,/);
  assert.match(javascript.text, /seed: JSON\.rawJSON\('9007199254740993'\)/);
});
