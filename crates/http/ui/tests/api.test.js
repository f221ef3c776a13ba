import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fieldsOf, messageOf, request, UNAUTHORIZED } from '../lib/api.js';
import { isBelow, rootUrl } from '../lib/root.js';
import { pageUrl, routeOf } from '../lib/router.js';

test('the message of each API', () => {
  assert.equal(messageOf({ error: 'a' }), 'a');
  assert.equal(messageOf({ error: { message: 'b' } }), 'b');
  assert.equal(messageOf({ title: 'c', detail: 'd' }), 'd');
  assert.equal(messageOf({ errors: [{ message: 'e' }] }), 'e');
  assert.equal(messageOf({ detail: [{ loc: ['body', 'input', 'name'], msg: 'Field required' }, { loc: [], msg: 'f' }] }), 'input.name: Field required\nf');
  assert.equal(messageOf(null), null);
});

test('the messages of inputs', () => {
  assert.deepEqual(fieldsOf({ invalid_fields: [{ field: 'input.steps', description: 'too large' }] }), { steps: 'too large' });
  assert.deepEqual(fieldsOf({ detail: [{ loc: ['body', 'input', 'steps'], msg: 'too large' }] }), { steps: 'too large' });
  const missing = ['text', 'words'].map((name) => ({ type: 'required', field: 'input', description: `${name} is required` }));
  assert.deepEqual(fieldsOf({ invalid_fields: missing }), { text: 'text is required', words: 'words is required' });
  assert.deepEqual(fieldsOf({ invalid_fields: [{ field: 'input', description: 'must be an object' }] }), { input: 'must be an object' });
});

test('the messages of entries belong to the input', () => {
  const invalid = [0, 2].map((at) => ({ type: 'type', field: `input.words.${at}`, description: 'no text' }));
  assert.deepEqual(fieldsOf({ invalid_fields: invalid }), { words: 'entry 1: no text; entry 3: no text' });
  assert.deepEqual(fieldsOf({ detail: [{ loc: ['body', 'input', 'words', 0], msg: 'no text' }] }), { words: 'entry 1: no text' });
});

test('pages below a prefix', () => {
  const base = new URL('https://host/prefix/ui/');
  assert.deepEqual(routeOf(new URL('https://host/prefix/ui/'), base).page, '');
  const { page, params } = routeOf(new URL('https://host/prefix/ui/jobs/a%2Fb?account=x'), base);
  assert.deepEqual([page, params], ['jobs', ['a/b']]);
  assert.match(pageUrl('models', 'owner/a b'), /\/models\/owner\/a%20b$/);
});

/**
 * Requests a path of a server that answers 401 where `refuses` says so.
 * @param {string} path
 * @param {(url: URL) => boolean} refuses
 */
async function askRefused(path, refuses) {
  const page = new EventTarget();
  let signedOut = false;
  page.addEventListener(UNAUTHORIZED, () => { signedOut = true; });
  /** @type {[string, boolean][]} */
  const asked = [];
  Object.assign(globalThis, {
    window: page,
    sessionStorage: { getItem: () => 'the-token' },
    fetch: async (/** @type {URL} */ url, /** @type {any} */ { headers }) => {
      asked.push([url.href.replace(rootUrl.href, ''), headers.Authorization === 'Bearer the-token']);
      return Response.json({ detail: 'no' }, { status: refuses(url) ? 401 : 200 });
    },
  });
  await assert.rejects(request(path), { name: 'ApiError', status: 401, message: 'no' });
  return { signedOut, asked };
}

test('a 401 of the server signs out', async () => {
  assert.deepEqual(await askRefused('admin/jobs', () => true), { signedOut: true, asked: [['admin/jobs', true]] });
  assert.deepEqual(await askRefused('v1/files', () => true), { signedOut: true, asked: [['v1/files', true], ['ui/api/session', true]] });
});

test('a 401 that the router relays does not sign out', async () => {
  const relayed = await askRefused('v1/chat/completions', (url) => url.pathname.endsWith('/completions'));
  assert.deepEqual(relayed, { signedOut: false, asked: [['v1/chat/completions', true], ['ui/api/session', true]] });
});

test('a 401 of another server says nothing, and it gets no token', async () => {
  const { signedOut, asked } = await askRefused('https://files.example/x', () => true);
  assert.deepEqual([signedOut, asked], [false, [['https://files.example/x', false]]]);
});

test('the token stays below the root, also on its own origin', async () => {
  // In this test the root is a folder of `file:`.
  const { signedOut, asked } = await askRefused('../other/files/x', () => true);
  assert.deepEqual([signedOut, asked.map(([, withToken]) => withToken)], [false, [false]]);
  const root = new URL('https://host/gate/');
  assert.equal(isBelow(new URL('https://host/gate/v1/predictions/a%2Fb..c'), root), true);
  for (const other of ['https://host/other/', 'https://host/gateway', 'https://host/gate/..%2Fother', 'https://host/gate/%2e%2e%5cother', 'http://host/gate/', 'https://host:1/gate/']) {
    assert.equal(isBelow(new URL(other), root), false, other);
  }
});
