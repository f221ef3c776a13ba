// The docs page's view of an OpenAPI document.

import assert from 'node:assert/strict';
import test from 'node:test';

import { byApi, curl, exampleOf, matches, operations } from '../dashboard/docs/openapi.js';

const DOCUMENT = {
  paths: {
    '/predictions/{id}': {
      parameters: [{ in: 'path', name: 'id', required: true, schema: { type: 'string' } }],
      put: {
        summary: 'Run',
        requestBody: { content: { 'application/json': { schema: { $ref: '#/components/schemas/Request' } } } },
        responses: { 200: { description: 'The prediction' } },
      },
      get: { operationId: 'read', parameters: [{ in: 'query', name: 'from', required: true, schema: { type: 'integer', default: 3 } }] },
    },
  },
  components: {
    schemas: {
      Request: { type: 'object', properties: { input: { $ref: '#/components/schemas/Input' }, webhook: { type: 'string' } } },
      Input: {
        type: 'object',
        required: ['text', 'mode'],
        properties: {
          text: { type: 'string', description: 'What to say' },
          mode: { allOf: [{ $ref: '#/components/schemas/Mode' }] },
          steps: { type: 'integer', default: 4 },
        },
      },
      Mode: { type: 'string', enum: ["it's", 'b'] },
      Loop: { type: 'object', required: ['next'], properties: { next: { $ref: '#/components/schemas/Loop' } } },
    },
  },
};

const [read, run] = operations(DOCUMENT);

test('every method of a path is an operation with the parameters of the path', () => {
  assert.deepEqual([read.method, run.method], ['GET', 'PUT']);
  assert.deepEqual(read.parameters.map((parameter) => [parameter.in, parameter.name, parameter.fallback]), [
    ['path', 'id', undefined],
    ['query', 'from', 3],
  ]);
  assert.equal(read.summary, 'read');
});

test('the inputs of the model are listed as fields of the body', () => {
  const fields = run.parameters.filter((parameter) => parameter.in === 'body');
  assert.deepEqual(fields.map(({ name, type, required }) => [name, type, required]), [
    ['input', 'object', false],
    ['input.text', 'string', true],
    ['input.mode', '"it\'s" | "b"', true],
    ['input.steps', 'integer', false],
    ['webhook', 'string', false],
  ]);
});

test('the example body has the required inputs only', () => {
  assert.deepEqual(run.body, { input: { text: 'text', mode: "it's" } });
});

test('a schema that refers to itself ends', () => {
  assert.ok(JSON.stringify(exampleOf(DOCUMENT, { $ref: '#/components/schemas/Loop' })).length < 200);
});

test('a reference to nothing, or to another document, is no value', () => {
  assert.equal(exampleOf(DOCUMENT, { $ref: '#/components/constructor/name' }), null);
  assert.equal(exampleOf(DOCUMENT, { $ref: 'https://example.com/x.json' }), null);
});

test('curl quotes the body for the shell and names the token', () => {
  const command = curl(run, new URL('http://h:1/prefix/'), true);
  assert.equal(
    command,
    [
      'curl -X PUT http://h:1/prefix/predictions/ID \\',
      '  -H "Authorization: Bearer $TIDEGATE_API_TOKEN" \\',
      "  -H 'Content-Type: application/json' \\",
      `  -d '{"input":{"text":"text","mode":"it'\\''s"}}'`,
    ].join('\n'),
  );
});

test('curl has required parameters of the query', () => {
  assert.equal(curl(read, new URL('http://h:1/'), false), "curl 'http://h:1/predictions/ID?from=FROM'");
});

test('a search finds operations that have all words', () => {
  assert.equal(matches(run, 'put PREDICTIONS'), true);
  assert.equal(matches(run, 'put nothing'), false);
  assert.equal(matches(run, ''), true);
});

test('the paths of one of several models are below its name', () => {
  const [, below] = operations(DOCUMENT, 'models/ann/echo');
  assert.equal(below.path, '/models/ann/echo/predictions/{id}');
  assert.match(curl(below, new URL('http://h:1/'), false), /^curl -X PUT http:\/\/h:1\/models\/ann\/echo\/predictions\/ID /);
});

test('the documents of an API are together', () => {
  const groups = byApi([{ api: 'cog', title: 'Cog: a/b' }, { api: 'cog', title: 'Cog: a/c' }, { api: 'runpod', title: 'Runpod, local API' }]);
  assert.deepEqual(groups.map(({ title, documents }) => [title, documents.length]), [['Cog', 2], ['Runpod, local API', 1]]);
});

test('a document without paths has no operations', () => {
  assert.deepEqual(operations(null), []);
});
