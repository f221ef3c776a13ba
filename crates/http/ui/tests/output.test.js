import assert from 'node:assert/strict';
import { test } from 'node:test';
import { describeOutput } from '../playground/output/describe.js';
import { fileOf, httpUrl, outputKind } from '../playground/output/kinds.js';

const places = ['http://localhost:5000'];
const context = { isFile: true, places };

test('previews are chosen by our own list of types', () => {
  const kind = (/** @type {string} */ url) => fileOf(url, context)?.kind;
  assert.deepEqual(['data:image/png;base64,AA', 'data:image/svg+xml,<svg/>', 'data:audio/wav;base64,AA', 'data:video/mp4;base64,AA'].map(kind), ['image', 'image', 'audio', 'video']);
  assert.deepEqual(['data:text/html,<script>', 'data:image/tiff,x', 'data:application/xhtml+xml,x', 'data:,x', 'DATA:text/html;charset=x,y'].map(kind), ['file', 'file', 'file', 'file', 'file']);
  assert.deepEqual(['png', 'SVG', 'mp3', 'webm', 'html', 'pdf', 'exe'].map((suffix) => kind(`http://localhost:5000/v1/files/a/x.${suffix}`)), ['image', 'image', 'audio', 'video', 'file', 'file', 'file']);
});

test('a file of another origin is not loaded', () => {
  assert.deepEqual(fileOf('https://evil.example/x.png', context), { url: 'https://evil.example/x.png', kind: 'file', name: 'x.png', foreign: true });
});

test('an address in a text is a text', () => {
  assert.equal(fileOf('https://evil.example/x.png', { isFile: false, places }), null);
  assert.equal(outputKind('https://evil.example/x.png', { type: 'string' }, places), 'text');
});

test('other schemes are never addresses', () => {
  for (const text of ['javascript:alert(1)', 'blob:http://x/1', 'file:///etc/passwd', 'ftp://x', 'http://', ' http://x', 'http://x y']) assert.equal(httpUrl(text), null, text);
});

test('names of downloads have no separators', () => {
  assert.equal(fileOf('http://localhost:5000/v1/files/..%2F..%2Fa%00b.sh', context)?.name, '.._.._a_b.sh');
});

test('each output has its view', () => {
  const png = 'data:image/png;base64,AA';
  const concatenated = { type: 'array', items: { type: 'string' }, 'x-cog-array-display': 'concatenate' };
  assert.equal(outputKind(null, {}, places), 'nothing');
  assert.equal(outputKind(['a', 'b'], concatenated, places), 'text');
  assert.equal(outputKind(['a', 'b'], { type: 'array' }, places), 'items');
  assert.equal(outputKind([png, png], {}, places), 'files');
  assert.equal(outputKind(png, {}, places), 'file');
  assert.equal(outputKind({ chart: png, words: 2 }, {}, places), 'record');
  assert.equal(outputKind({ words: 2 }, {}, places), 'json');
  assert.equal(outputKind(3.5, {}, places), 'text');
});

test('the expected output in words', () => {
  const describe = (/** @type {any} */ Output) => describeOutput({ components: { schemas: { Output } } });
  assert.equal(describe({ type: 'string' }), 'Text.');
  assert.equal(describe({ type: 'string', format: 'uri' }), 'A file.');
  assert.equal(describe({ type: 'number' }), 'A number.');
  assert.equal(describe({ type: 'array', items: { type: 'string', format: 'uri' } }), 'A list of files.');
  assert.equal(describe({ type: 'object', properties: { chart: { type: 'string', format: 'uri' }, words: { type: 'integer' } } }), 'An object with chart (file) and words (integer).');
  assert.match(describe({ type: 'array', items: { type: 'string' }, 'x-cog-array-type': 'iterator', 'x-cog-array-display': 'concatenate' }), /word by word/);
});

test('below a proxy prefix, files of other applications are foreign', () => {
  const below = { isFile: true, places: ['https://host/gate/', 'https://files.example'] };
  assert.equal(fileOf('https://host/gate/files/x.png', below)?.foreign, false);
  assert.equal(fileOf('https://files.example/any/x.png', below)?.foreign, false);
  for (const path of ['other/x.png', 'gateway/x.png', 'gate/../other/x.png', 'gate/%2e%2e/other/x.png', 'gate/..%2fother/x.png', 'gate/a%5C%2e%2E%2fx.png']) {
    const file = fileOf(`https://host/${path}`, below);
    assert.deepEqual([file?.foreign, file?.kind], [true, 'file'], path);
  }
});
