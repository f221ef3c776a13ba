import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fieldsOf, takesAnyObject } from '../playground/inputs/fields.js';

/**
 * @param {Record<string, any>} properties
 * @param {Record<string, any>} [rest]
 */
function documentOf(properties, rest = {}) {
  return { components: { schemas: { Input: { type: 'object', properties, ...rest }, ...rest.schemas } } };
}

test('each type of the schema becomes its field', () => {
  const fields = fieldsOf(documentOf({
    word: { type: 'string', maxLength: 10 },
    name: { type: 'string' },
    prompt: { type: 'string' },
    whole: { type: 'integer', minimum: 1, maximum: 10 },
    real: { type: 'number' },
    flag: { type: 'boolean' },
    image: { type: 'string', format: 'uri', 'x-cog-accept': 'image/*' },
    key: { type: 'string', format: 'password', 'x-cog-secret': true },
    words: { type: 'array', items: { type: 'string' } },
    images: { type: 'array', items: { type: 'string', format: 'uri' } },
    messages: { type: 'array', items: { type: 'object' } },
    anything: { type: 'object' },
    either: { anyOf: [{ type: 'integer' }, { type: 'string' }] },
  }));
  const kinds = Object.fromEntries(fields.map((field) => [field.name, field.kind]));
  assert.deepEqual(kinds, {
    word: 'line', name: 'text', prompt: 'longtext', whole: 'integer', real: 'number', flag: 'boolean', image: 'file', key: 'secret',
    words: 'list', images: 'list', messages: 'json', anything: 'json', either: 'json',
  });
  assert.equal(fields.find((field) => field.name === 'images')?.item?.kind, 'file');
  assert.deepEqual([fields[3].minimum, fields[3].maximum], [1, 10]);
});

test('x-order decides the order', () => {
  const fields = fieldsOf(documentOf({ b: { type: 'string', 'x-order': 1 }, a: { type: 'string', 'x-order': 0 }, c: { type: 'string' } }));
  assert.deepEqual(fields.map((field) => field.name), ['a', 'b', 'c']);
});

test('choices are found behind allOf and $ref, without the text of the enumeration', () => {
  const [field] = fieldsOf(documentOf(
    { colour: { allOf: [{ $ref: '#/components/schemas/colour' }], default: 'red' } },
    { schemas: { colour: { enum: ['red', 'green'], type: 'string', description: 'An enumeration.' } } },
  ));
  assert.deepEqual([field.kind, field.choices, field.defaultValue, field.description], ['choice', ['red', 'green'], 'red', null]);
});

test('a nullable input is optional, in each notation', () => {
  const fields = fieldsOf(documentOf({
    a: { type: 'string', nullable: true },
    b: { anyOf: [{ type: 'integer' }, { type: 'null' }] },
    c: { type: ['number', 'null'] },
  }));
  assert.deepEqual(fields.map(({ kind, nullable }) => [kind, nullable]), [['text', true], ['integer', true], ['number', true]]);
});

test('an input with a default is not required', () => {
  const [a, b] = fieldsOf(documentOf({ a: { type: 'string' }, b: { type: 'string', default: '' } }, { required: ['a', 'b'] }));
  assert.deepEqual([a.required, b.required, b.hasDefault], [true, false, true]);
});

test('references in a circle end', () => {
  const document = documentOf({ a: { $ref: '#/components/schemas/A' } }, { schemas: { A: { $ref: '#/components/schemas/A' } } });
  assert.equal(fieldsOf(document)[0].kind, 'json');
});

test('a handler takes any object', () => {
  assert.equal(takesAnyObject({ components: { schemas: { Input: { type: 'object', additionalProperties: true } } } }), true);
  assert.deepEqual(fieldsOf(null), []);
});

test('schemas that refer to themselves end as JSON fields', () => {
  const ref = { $ref: '#/components/schemas/A' };
  const fieldWith = (/** @type {any} */ A) => fieldsOf({ components: { schemas: { Input: { properties: { x: ref } }, A } } })[0];
  assert.equal(fieldWith({ anyOf: [ref] }).kind, 'json');
  assert.equal(fieldWith({ allOf: Array(1000).fill(ref) }).kind, 'json');
  assert.equal(fieldWith(ref).kind, 'json');
  let field = fieldWith({ type: 'array', items: ref });
  let depth = 0;
  for (; field.item !== null; field = field.item) depth += 1;
  assert.deepEqual([depth, field.kind], [4, 'json']);
});

test('an input without a schema is JSON', () => {
  const fields = fieldsOf(documentOf({ none: null, text: 'x', word: { type: 'string' } }));
  assert.deepEqual(fields.map(({ name, kind }) => [name, kind]), [['none', 'json'], ['text', 'json'], ['word', 'text']]);
});
