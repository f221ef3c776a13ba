import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fieldsOf } from '../playground/inputs/fields.js';
import { fragmentOf, shareable, valuesOfFragment } from '../playground/inputs/link.js';
import { withoutSecrets } from '../playground/inputs/secrets.js';
import { fromText, LocalFile, numberOf, toInput, toText } from '../playground/inputs/values.js';

const file = new LocalFile(new File(['tide'], 'a.txt', { type: 'text/plain' }));

test('a number is read only if the whole text is one', () => {
  assert.deepEqual(['1', ' -2.5 ', '1e3', '.5', '1.'].map(numberOf), [1, -2.5, 1000, 0.5, 1]);
  assert.deepEqual(['', '1a', '0x10', 'Infinity', '1e999', '1 2'].map(numberOf), ['', '1a', '0x10', 'Infinity', '1e999', '1 2']);
});

test('a file survives JSON mode', () => {
  const values = { image: file, other: ['x', file] };
  assert.deepEqual(fromText(toText(values), values), { values });
});

test('JSON mode takes objects only', () => {
  assert.deepEqual(fromText('[1]', {}), { error: 'The input must be a JSON object.' });
  assert.ok('error' in fromText('{"a":', {}));
});

test('a small file is sent as a data URI, a large one is uploaded', async () => {
  const large = new LocalFile(new File([new Uint8Array(256 * 1024 + 1)], 'large.bin'));
  const input = await toInput({ a: file, list: [large] }, async (sent) => `https://files/${sent.name}`);
  assert.deepEqual(input, { a: 'data:text/plain;base64,dGlkZQ==', list: ['https://files/large.bin'] });
});

test('links contain no secrets and no files', () => {
  const fields = fieldsOf({ components: { schemas: { Input: { properties: {
    text: { type: 'string' },
    key: { type: 'string', format: 'password' },
    image: { type: 'string', format: 'uri' },
    images: { type: 'array', items: { type: 'string', format: 'uri' } },
    extra: { type: 'object' },
  } } } } });
  const { shared, omitted } = shareable({
    text: 'a#b&c "ü"', key: 'k', image: 'https://x/signed', images: ['https://x'], extra: { deep: ['data:text/plain,x'] }, api_key: 'k2', unknown: 1,
  }, fields);
  assert.deepEqual(shared, { text: 'a#b&c "ü"', unknown: 1 });
  assert.deepEqual(omitted, ['key', 'image', 'images', 'extra', 'api_key']);
  assert.deepEqual(valuesOfFragment(fragmentOf(shared)), shared);
});

test('a broken fragment is no input', () => {
  for (const fragment of ['', '#main', '#input=%', '#input=[1]', '#input=null']) assert.equal(valuesOfFragment(fragment), null);
});

test('the secrets of an earlier job are unset in the form, and never in a link', () => {
  const fields = fieldsOf({ components: { schemas: { Input: { properties: { key: { type: 'string', format: 'password' }, word: { type: 'string' } } } } } });
  const input = { key: '**********', word: 'x', other: '**********', none: null };
  assert.deepEqual(withoutSecrets(input, fields), { word: 'x', none: null });
  assert.deepEqual(withoutSecrets({ key: 'as the server sent it' }, fields), {});
  assert.deepEqual(shareable(input, fields).omitted, ['key', 'other']);
});
