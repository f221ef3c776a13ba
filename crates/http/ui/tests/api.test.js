import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fieldsOf, messageOf } from '../lib/api.js';
import { pageUrl, routeOf } from '../lib/router.js';

test('the message of each API', () => {
  assert.equal(messageOf({ error: 'a' }), 'a');
  assert.equal(messageOf({ error: { message: 'b' } }), 'b');
  assert.equal(messageOf({ title: 'c', detail: 'd' }), 'd');
  assert.equal(messageOf({ errors: [{ message: 'e' }] }), 'e');
  assert.equal(messageOf(null), null);
});

test('the messages of inputs', () => {
  assert.deepEqual(fieldsOf({ invalid_fields: [{ field: 'input.steps', description: 'too large' }] }), { steps: 'too large' });
  assert.deepEqual(fieldsOf({ detail: [{ loc: ['body', 'input', 'steps'], msg: 'too large' }] }), { steps: 'too large' });
});

test('pages below a prefix', () => {
  const base = new URL('https://host/prefix/ui/');
  assert.deepEqual(routeOf(new URL('https://host/prefix/ui/'), base).page, '');
  const { page, params } = routeOf(new URL('https://host/prefix/ui/jobs/a%2Fb?account=x'), base);
  assert.deepEqual([page, params], ['jobs', ['a/b']]);
  assert.match(pageUrl('models', 'owner/a b'), /\/models\/owner\/a%20b$/);
});
