import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fieldsOf } from '../playground/inputs/fields.js';
import { runOfVersion } from '../playground/start_run.js';
import { proposedDestination, trainingOf } from '../playground/training.js';

const string = { type: 'string' };

test('the form of a training has the inputs of the training', () => {
  const schemas = { Input: { properties: { text: string } }, TrainingInput: { properties: { word: string } }, TrainingOutput: string };
  const detail = /** @type {any} */ ({ name: 'ann/echo', version: 'abc', schema: { components: { schemas } } });
  const training = trainingOf(detail, 'ann/mine');
  assert.deepEqual(fieldsOf(training.schema).map(({ name }) => name), ['word']);
  assert.deepEqual(training.run, { style: 'replicate', path: 'v1/models/ann/echo/versions/abc/trainings', fields: { destination: 'ann/mine' } });
  assert.equal(trainingOf({ ...detail, schema: null }, '').schema, null);
});

test('a trained version belongs to a model of the account', () => {
  assert.equal(proposedDestination('~', 'local/echo'), 'anonymous/echo-trained');
  assert.equal(proposedDestination('ann', 'local/echo'), 'ann/echo-trained');
});

test('another version than the current one is named in the request', () => {
  const run = /** @type {const} */ ({ path: 'v1/models/ann/echo/predictions', style: 'replicate' });
  assert.equal(runOfVersion({ run, version: 'a' }, 'a'), run);
  assert.equal(runOfVersion({ run, version: 'a' }, null), run);
  assert.deepEqual(runOfVersion({ run, version: 'a' }, 'b').fields, { version: 'b' });
});
