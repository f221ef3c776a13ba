// The jobs table: filters in URLs, rows that keep their place, bulk actions.

import assert from 'node:assert/strict';
import test from 'node:test';

import { applicable, forEach, modelPath, rerun, resultSummary } from '../dashboard/jobs/bulk.js';
import { filtersOf, isFiltered, NO_FILTERS, queryOf, requestPath } from '../dashboard/jobs/filters.js';
import { keyOf, merge, outdated, visibleSelection } from '../dashboard/jobs/rows.js';

/**
 * @param {string} id
 * @param {Partial<import('../dashboard/jobs/rows.js').JobRow>} [parts]
 */
const job = (id, parts = {}) => ({
  id,
  model: 'local/echo',
  version: 'v',
  kind: 'prediction',
  face: 'cog',
  status: 'succeeded',
  created_at: '2026-01-02T03:04:05Z',
  waited_s: 0,
  ...parts,
});

test('filters survive the way through the URL', () => {
  const filters = { status: 'failed', model: 'a/b c', account: '~', idPrefix: 'x&y', before: 'c+1' };
  assert.deepEqual(filtersOf(new URLSearchParams(queryOf(filters))), filters);
  assert.equal(queryOf(NO_FILTERS), '');
});

test('an unknown status in a link is ignored', () => {
  assert.deepEqual(filtersOf(new URLSearchParams('status=<script>&other=1')), { ...NO_FILTERS });
});

test('the request has the filters and a limit', () => {
  assert.equal(requestPath({ ...NO_FILTERS, idPrefix: 'ab', before: '9' }), 'admin/jobs?id_prefix=ab&before=9&limit=50');
});

test('a page is not a filter', () => {
  assert.equal(isFiltered({ ...NO_FILTERS, before: '9' }), false);
  assert.equal(isFiltered({ ...NO_FILTERS, account: '~' }), true);
});

test('a held table keeps the order, updates known rows and counts new ones', () => {
  const rows = [job('a', { status: 'processing' }), job('b')];
  const answer = [job('new'), job('b'), job('a')];
  const { rows: shown, unseen } = merge(rows, answer, true);
  assert.deepEqual(shown.map(({ id, status }) => [id, status]), [['a', 'succeeded'], ['b', 'succeeded']]);
  assert.equal(unseen, 1);
});

test('a table that is not held shows the answer', () => {
  const answer = [job('new'), job('a')];
  assert.deepEqual(merge([job('a')], answer, false), { rows: answer, unseen: 0 });
});

test('an empty table shows the first jobs even if it is held', () => {
  assert.equal(merge([], [job('a')], true).rows.length, 1);
});

test('open rows that left the answer are outdated', () => {
  const rows = [job('a', { status: 'processing' }), job('b'), job('c', { status: 'queued' })];
  assert.deepEqual(outdated(rows, [rows[2]]).map(({ id }) => id), ['a']);
});

test('jobs of two accounts with one id are two rows', () => {
  assert.notEqual(keyOf(job('a', { account: 'ann' })), keyOf(job('a')));
});

test('a selection loses rows that are not shown', () => {
  assert.deepEqual([...visibleSelection(new Set(['~/a', '~/b']), [job('b')])], ['~/b']);
});

test('only open jobs can be canceled, only predictions run again', () => {
  const jobs = [job('a', { status: 'queued' }), job('b'), job('c', { kind: 'training' })];
  assert.deepEqual(applicable('cancel', jobs).map(({ id }) => id), ['a']);
  assert.deepEqual(applicable('rerun', jobs).map(({ id }) => id), ['a', 'b']);
});

test('each job of a bulk action has its own result', async () => {
  /** @type {[string, boolean, string][]} */
  const seen = [];
  let running = 0;
  let most = 0;
  await forEach(
    ['a', 'b', 'c', 'd', 'e'].map((id) => job(id)),
    async ({ id }) => {
      most = Math.max(most, ++running);
      await null;
      running -= 1;
      if (id === 'c') throw new Error('already ended');
      return { ok: true, text: 'canceled' };
    },
    (key, result) => seen.push([key, result.ok, result.text]),
  );
  assert.deepEqual(seen.toSorted(), [
    ['~/a', true, 'canceled'],
    ['~/b', true, 'canceled'],
    ['~/c', false, 'already ended'],
    ['~/d', true, 'canceled'],
    ['~/e', true, 'canceled'],
  ]);
  assert.equal(most, 3);
});

test('the summary of a bulk action names failures', () => {
  assert.equal(resultSummary('cancel', [{ ok: true, text: '' }]), '1 job canceled.');
  assert.equal(resultSummary('rerun', [{ ok: false, text: '' }, { ok: false, text: '' }]), '0 jobs started again, 2 failed.');
});

test('a job of a Runpod endpoint runs again at its endpoint', () => {
  assert.equal(modelPath({ model: 'ann/ä' }), 'ui/api/models/ann/%C3%A4');
  assert.equal(modelPath({ model: 'runpod/sd', endpoint: 'sd' }), 'ui/api/endpoints/sd');
});

/**
 * Answers requests from a table of documents by path, and returns the bodies that were posted by path.
 * @param {Record<string, unknown>} documents
 */
function serve(documents) {
  /** @type {[string, any][]} */
  const posted = [];
  Object.assign(globalThis, {
    sessionStorage: { getItem: () => null },
    localStorage: { getItem: () => null },
    fetch: async (/** @type {URL} */ url, /** @type {any} */ { method, body }) => {
      const path = Object.keys(documents).find((known) => url.pathname.endsWith(`/${known}`));
      if (path === undefined) throw new Error(`no document at ${url}`);
      if (method === 'POST') posted.push([path, JSON.parse(body)]);
      return Response.json(documents[path]);
    },
  });
  return posted;
}

const SECRET_SCHEMA = { components: { schemas: { Input: { properties: { key: { type: 'string', format: 'password' }, word: { type: 'string' } } } } } };

test('a job with secrets does not run again, with or without a schema', async () => {
  for (const schema of [SECRET_SCHEMA, null]) {
    const posted = serve({
      'ui/api/jobs/~/a': { model: 'local/echo', version: 'v', input: { key: '**********', word: 'x' } },
      'ui/api/models/local/echo': { schema, version: 'v', versions: [], run: { path: 'v1/models/local/echo/predictions', style: 'replicate' } },
    });
    const result = await rerun(job('a'));
    assert.equal(result.ok, false);
    assert.match(result.text, /secrets; enter key in/);
    assert.deepEqual(posted, []);
  }
});

test('a job runs again on its own version, or the result names the other one', async () => {
  const rerunWith = async (/** @type {string} */ version, /** @type {string[]} */ versions) => {
    const posted = serve({
      'ui/api/jobs/~/a': { model: 'local/echo', version, input: { word: 'x' } },
      'ui/api/models/local/echo': { schema: null, version: 'new', versions: versions.map((known) => ({ version: known, runnable: true })), run: { path: 'v1/models/local/echo/predictions', style: 'replicate' } },
      'v1/models/local/echo/predictions': { id: 'b' },
      'v1/predictions': { id: 'c' },
    });
    return { result: await rerun(job('a')), posted };
  };
  const input = { word: 'x' };
  const current = ['v1/models/local/echo/predictions', { input }];
  assert.deepEqual(await rerunWith('new', ['new']), { result: { ok: true, text: 'running again', id: 'b' }, posted: [current] });
  assert.deepEqual(await rerunWith('old', ['new', 'old']), { result: { ok: true, text: 'running again', id: 'c' }, posted: [['v1/predictions', { version: 'old', input }]] });
  const text = 'running again on version new, because version old is no longer served';
  assert.deepEqual(await rerunWith('old', ['new']), { result: { ok: true, text, id: 'b' }, posted: [current] });
});
