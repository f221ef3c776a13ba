import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { deltaOf } from '../playground/chat/stream.js';
import { phasesOf } from '../playground/output/timeline.js';
import { reloadIsDue } from '../playground/pages.js';
import { followJob, runDirectly } from '../playground/run_streams.js';
import { RunView } from '../playground/run_view.js';
import { publicJobPath } from '../playground/start_run.js';
import { loadingSince, stateLine } from '../playground/state_line.js';

/** @type {(() => void)[]} */
let frames = [];

beforeEach(() => {
  frames = [];
  Object.assign(globalThis, { document: { hidden: false }, requestAnimationFrame: (/** @type {() => void} */ run) => frames.push(run) });
});

function paint() {
  const waiting = frames;
  frames = [];
  waiting.forEach((run) => run());
}

test('many values are painted once per frame', () => {
  const run = new RunView();
  let painted = 0;
  run.listeners.add(() => { painted += 1; });
  for (let index = 0; index < 100; index += 1) run.takeOutput(index, 'x');
  assert.equal(painted, 0);
  paint();
  assert.deepEqual([painted, run.text.length], [1, 100]);
});

test('a resumed stream may repeat values', () => {
  const run = new RunView();
  run.takeOutput(0, 'a');
  run.takeOutput(1, 'b');
  run.takeOutput(0, 'a');
  run.takeOutput(1, 'b');
  run.takeOutput(2, 'c');
  assert.deepEqual(run.parts, ['a', 'b', 'c']);
});

test('the final document keeps a text that continues the stream', () => {
  const run = new RunView();
  run.takeOutput(0, 'a');
  run.takeLogs('one\n');
  const { generation } = run;
  run.takeDocument({ status: 'succeeded', output: ['a', 'b'], output_is_list: true, logs: 'one\ntwo\n' });
  assert.deepEqual([run.text, run.logs, run.generation, run.ended], ['ab', 'one\ntwo\n', generation, true]);
});

test('a final document with other values replaces the stream', () => {
  const run = new RunView();
  run.takeOutput(0, 'data:x');
  const { generation } = run;
  run.takeDocument({ status: 'succeeded', output: 'https://files/x', output_is_list: false });
  assert.deepEqual([run.output, run.generation > generation], ['https://files/x', true]);
});

test('a restart voids output and logs', () => {
  const run = new RunView();
  run.takeOutput(0, 'a');
  run.takeLogs('x');
  run.clear();
  run.takeOutput(0, 'b');
  assert.deepEqual([run.parts, run.text, run.logs], [['b'], 'b', '']);
});

test('a list with one value is a list', () => {
  const run = new RunView();
  run.takeDocument({ status: 'succeeded', output: ['a'], output_is_list: true });
  assert.deepEqual(run.output, ['a']);
});

test('the phases of a job that runs, and of one that ended', () => {
  const created = '2026-01-01T00:00:00Z';
  const now = Date.parse('2026-01-01T00:00:10Z');
  // The server's document has the time until it was written.
  const waiting = phasesOf({ created_at: created, started_at: null, waited_s: 0.04 }, now);
  assert.deepEqual(waiting.map(({ id, seconds }) => [id, seconds]), [['waited', 10]]);
  const running = phasesOf({ created_at: created, started_at: '2026-01-01T00:00:04Z', waited_s: 1, loaded_s: 3, ran_s: 0.1 }, now);
  assert.deepEqual(running.map(({ id, seconds }) => [id, seconds]), [['waited', 1], ['loaded', 3], ['ran', 6]]);
  const ended = phasesOf({ created_at: created, started_at: created, completed_at: created, waited_s: 0.5, ran_s: 2 }, now);
  assert.deepEqual(ended.map(({ id, seconds }) => [id, seconds]), [['waited', 0.5], ['ran', 2]]);
});

test('while the model loads, the time of a waiting job is that of loading', () => {
  const job = { created_at: '2026-01-01T00:00:00Z', started_at: null, waited_s: 0.04 };
  const now = Date.parse('2026-01-01T00:00:10Z');
  const state = (/** @type {string} */ since) => loadingSince({ health: 'STARTING', detail: null, since });
  assert.deepEqual(phasesOf(job, now, state('2026-01-01T00:00:04Z')).map(({ id, seconds }) => [id, seconds]), [['waited', 4], ['loaded', 6]]);
  assert.deepEqual(phasesOf(job, now, state('2025-12-31T00:00:00Z')).map(({ id, seconds }) => [id, seconds]), [['loaded', 10]]);
  assert.equal(loadingSince({ health: 'READY', detail: null, since: null }), null);
});

test('the state of a model in one line', () => {
  const now = Date.parse('2026-01-01T00:00:12Z');
  const since = '2026-01-01T00:00:00Z';
  assert.deepEqual(stateLine({ health: 'STARTING', detail: 'loading weights', since }, now), { badge: 'loading 12 s', text: 'loading weights' });
  assert.deepEqual(stateLine({ health: 'READY', detail: null, since }, now), { badge: 'ready', text: '' });
  assert.deepEqual(stateLine({ health: 'SETUP_FAILED', detail: 'setup failed: no CUDA', since }, now), { badge: 'setup failed', text: 'no CUDA' });
});

test('the text of a chunk, and an error in the stream', () => {
  assert.equal(deltaOf('{"choices":[{"delta":{"content":"a"}}]}'), 'a');
  assert.equal(deltaOf('{"choices":[],"usage":{}}'), '');
  assert.equal(deltaOf('[DONE]'), '');
  assert.throws(() => deltaOf('{"error":{"message":"out of words"}}'), /out of words/);
});

test('the path of a job in its API', () => {
  assert.equal(publicJobPath({ api: 'replicate', id: 'a/b', model: 'o/n', kind: 'prediction' }), 'v1/predictions/a%2Fb');
  assert.equal(publicJobPath({ api: 'runpod', id: 'x', model: 'n', endpoint: 'e' }), 'v2/e/status/x');
  assert.equal(publicJobPath({ api: 'openai', id: 'x' }), null);
});

test('a model is read again once per change of its live health', () => {
  assert.equal(reloadIsDue({ seen: null, live: 'READY', loaded: 'READY' }), false);
  assert.equal(reloadIsDue({ seen: null, live: 'STARTING', loaded: 'READY' }), true);
  // The live section stays behind the document.
  assert.equal(reloadIsDue({ seen: 'STARTING', live: 'STARTING', loaded: 'READY' }), false);
  assert.equal(reloadIsDue({ seen: 'STARTING', live: 'READY', loaded: 'STARTING' }), true);
});

/**
 * Runs a model of a router, whose answers these are by the `Accept` of the request.
 * @param {(accept: string | undefined) => Response} answer
 * @param {any | null} [schema]
 */
async function runOnRouter(answer, schema = null) {
  Object.assign(globalThis, {
    sessionStorage: { getItem: () => null },
    localStorage: { getItem: () => null },
    fetch: async (/** @type {URL} */ _url, /** @type {any} */ { headers }) => answer(headers.Accept),
  });
  Object.defineProperty(globalThis, 'navigator', { value: {}, configurable: true });
  const run = new RunView();
  await runDirectly(run, { path: 'models/m/predictions', schema, input: {}, signal: new AbortController().signal });
  return run;
}

test('a model without streams is asked for the whole answer', async () => {
  const run = await runOnRouter((accept) => (accept === 'text/event-stream' ? Response.json({ detail: 'no stream' }, { status: 406 }) : Response.json({ status: 'succeeded', output: 'x' })));
  assert.deepEqual([run.shownStatus, run.output, run.error], ['succeeded', 'x', null]);
});

test('a model whose schema has no stream is not asked for one', async () => {
  const schemas = [
    { schema: { paths: { '/predictions': { post: {} } }, components: { schemas: { Output: { type: 'string' } } } }, streams: false },
    { schema: { paths: { '/predictions': { post: { 'x-cog-streaming': true } } } }, streams: true },
    { schema: { components: { schemas: { Output: { type: 'array', 'x-cog-array-type': 'iterator' } } } }, streams: true },
    { schema: null, streams: true },
  ];
  for (const { schema, streams } of schemas) {
    /** @type {(string | undefined)[]} */
    const accepted = [];
    await runOnRouter((accept) => {
      accepted.push(accept);
      return Response.json({ status: 'succeeded', output: 'x' });
    }, schema);
    assert.deepEqual(accepted.map((accept) => accept === 'text/event-stream'), [streams], JSON.stringify(schema));
  }
});

test('a run whose request fails has failed, and a job that cannot be followed is unknown', async () => {
  const run = await runOnRouter(() => Response.json({ detail: 'no' }, { status: 503 }));
  assert.deepEqual([run.shownStatus, run.error?.message], ['failed', 'no']);
  const job = new RunView();
  job.takeDocument({ id: 'x', account: '~', status: 'processing' });
  assert.equal(job.shownStatus, 'processing');
  job.fail(new Error('gone'));
  assert.equal(job.shownStatus, 'unknown');
});

/**
 * The `id`, `event` and `data` of logs in an event stream.
 * @param {number} id
 * @param {string} text
 */
function logsEvent(id, text) {
  return `id: ${id}\nevent: logs\ndata: ${JSON.stringify({ text })}\n\n`;
}

test('a stream after a poll replaces what the poll has shown', async () => {
  const page = Object.assign(new EventTarget(), { hidden: false });
  let slotIsFree = true;
  const locks = { request: async (/** @type {string} */ _name, /** @type {any} */ _options, /** @type {(lock: unknown) => Promise<boolean>} */ run) => run(slotIsFree ? {} : null) };
  Object.assign(globalThis, { document: page, sessionStorage: { getItem: () => null }, localStorage: { getItem: () => null } });
  Object.defineProperty(globalThis, 'navigator', { value: { locks }, configurable: true });
  const documents = [{ status: 'processing', logs: '' }, { status: 'processing', logs: 'a\nb\n' }];
  const streams = [logsEvent(1, 'a\n'), logsEvent(1, 'a\n') + logsEvent(2, 'b\n') + logsEvent(3, 'c\n')];
  /** @type {(string | undefined)[]} */
  const resumed = [];
  const fetch = async (/** @type {URL} */ url, /** @type {any} */ { headers, signal }) => {
    if (!url.pathname.endsWith('/events')) return Response.json(documents.length > 1 ? documents.shift() : documents[0]);
    resumed.push(headers['Last-Event-ID']);
    const bytes = new TextEncoder().encode(streams.shift());
    return new Response(new ReadableStream({
      start(stream) {
        stream.enqueue(bytes);
        signal.addEventListener('abort', () => stream.error(signal.reason));
      },
    }));
  };
  Object.assign(globalThis, { fetch });

  const stopping = new AbortController();
  const run = new RunView();
  const setHidden = (/** @type {boolean} */ hidden) => {
    page.hidden = hidden;
    page.dispatchEvent(new Event('visibilitychange'));
  };
  await followJob(run, { account: '~', id: 'x', signal: stopping.signal });
  await until(() => run.logs === 'a\n');
  // Another tab takes the slot while this one is hidden.
  setHidden(true);
  slotIsFree = false;
  setHidden(false);
  await until(() => run.logs === 'a\nb\n');
  slotIsFree = true;
  await until(() => run.logs.includes('c'));
  stopping.abort();
  assert.equal(run.logs, 'a\nb\nc\n');
  assert.deepEqual(resumed, [undefined, undefined]);
});

/** @param {() => boolean} condition */
async function until(condition) {
  for (let tries = 0; !condition(); tries += 1) {
    assert.ok(tries < 1000, `not reached: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
