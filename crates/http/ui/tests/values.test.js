import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fieldsOf } from '../playground/inputs/fields.js';
import { ExactInteger, parseExact, writeExact } from '../lib/exact_json.js';
import { isMeaning } from '../playground/inputs/controls/number.js';
import { fragmentOf, inputsOfFragment, shareable } from '../playground/inputs/link.js';
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

test('two files with the same name stay two files', () => {
  const other = new LocalFile(new File(['other'], 'a.txt'));
  const values = { image: file, other };
  const read = fromText(toText(values), values);
  assert.ok('values' in read && read.values.image === file && read.values.other === other);
});

test('integers above 2^53 keep their digits', async () => {
  const text = '{"seed":9007199254740993,"list":[-12345678901234567890],"text":"9007199254740993","float":1e21,"small":7}';
  const values = parseExact(text);
  assert.deepEqual([String(values.seed), values.text, values.small], ['9007199254740993', '9007199254740993', 7]);
  assert.equal(writeExact(values), '{"seed":9007199254740993,"list":[-12345678901234567890],"text":"9007199254740993","float":1e+21,"small":7}');
  assert.deepEqual(fromText(toText(values), values), { values });
  assert.equal(writeExact(await toInput({ seed: numberOf('+09007199254740993') }, async () => '')), '{"seed":9007199254740993}');
  assert.deepEqual(inputsOfFragment(fragmentOf({ shared: values, omitted: [] }))?.shared, values);
  assert.throws(() => parseExact('{"seed":9007199254740993'), SyntaxError);
});

test('a number field keeps what is typed while it means the value', () => {
  for (const [draft, value] of [['1.', 1], ['', undefined], ['-', '-'], ['9007199254740993', new ExactInteger('9007199254740993')]]) assert.equal(isMeaning(String(draft), value, 5), true, String(draft));
  // An entry of a list has its default in place of no value.
  assert.equal(isMeaning('', 0, 0), true);
  for (const [draft, value] of [['1', 2], ['', 3], ['7', undefined]]) assert.equal(isMeaning(String(draft), value, 5), false, String(draft));
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
  assert.deepEqual(inputsOfFragment(fragmentOf({ shared, omitted })), { shared, omitted });
});

test('only texts under the name of a secret are kept out of a link', () => {
  const values = { max_tokens: 7, stop: ['</token>'], sampling_params: { max_tokens: 7, token_limit: '8' }, token: 1, eos_token: null, tokenizer: 'fast' };
  assert.deepEqual(shareable(values, []), { shared: values, omitted: [] });
  const secrets = { token: 'x', hf_token: 'x', apiKey: 'x', credentials: { user: 'x' }, deep: [{ client_secret: 'x' }] };
  assert.deepEqual(shareable(secrets, []), { shared: {}, omitted: Object.keys(secrets) });
});

test('a broken fragment is no input', () => {
  for (const fragment of ['', '#main', '#input=%', '#input=[1]', '#input=null']) assert.equal(inputsOfFragment(fragment), null);
});

test('the secrets of an earlier job are unset in the form, and never in a link', () => {
  const fields = fieldsOf({ components: { schemas: { Input: { properties: { key: { type: 'string', format: 'password' }, word: { type: 'string' } } } } } });
  const input = { key: '**********', word: 'x', other: '**********', none: null };
  assert.deepEqual(withoutSecrets(input, fields), { word: 'x', none: null });
  assert.deepEqual(withoutSecrets({ key: 'as the server sent it' }, fields), {});
  assert.deepEqual(shareable(input, fields).omitted, ['key', 'other']);
});
