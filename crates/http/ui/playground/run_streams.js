// The connections that feed a `RunView`: the events of a job, or a direct stream of Cog's API.

import { ApiError, request, requestJob } from '../lib/api.js';
import { EventParser, followEvents, textChunks } from '../lib/sse.js';
import { inStreamSlot, whenStreamSlotIsFree } from '../lib/stream_slots.js';
import { whileVisible } from '../lib/visibility.js';
import { isEnded } from './run_view.js';

/** @typedef {import('./run_view.js').RunView} RunView */

const POLL_MS = 1500;

/**
 * The path of a job's document.
 * @param {string} account
 * @param {string} id
 */
export function jobPath(account, id) {
  return `ui/api/jobs/${encodeURIComponent(account)}/${encodeURIComponent(id)}`;
}

/**
 * Shows a job and follows it until its end. A hidden tab drops the stream and resumes it later.
 * @param {RunView} view
 * @param {{account: string, id: string, signal: AbortSignal}} job
 */
export async function followJob(view, { account, id, signal }) {
  const path = jobPath(account, id);
  try {
    await readDocument(view, path, signal);
  } catch (error) {
    if (!signal.aborted) view.fail(/** @type {Error} */ (error));
    return;
  }
  const position = { lastEventId: /** @type {string | null} */ (null) };
  whileVisible(signal, async (visible) => {
    try {
      while (!visible.aborted && !view.ended) {
        const streamed = await inStreamSlot(() => readStream(view, path, position, visible));
        if (!streamed) await poll(view, path, position, visible);
      }
    } catch (error) {
      if (!visible.aborted) view.fail(/** @type {Error} */ (error));
    }
  });
}

/**
 * @param {RunView} view
 * @param {string} path
 * @param {AbortSignal} signal
 */
async function readDocument(view, path, signal) {
  view.takeDocument(await requestJob(path, { signal }));
}

/**
 * @param {RunView} view
 * @param {string} path
 * @param {{lastEventId: string | null}} position
 * @param {AbortSignal} signal
 */
async function readStream(view, path, position, signal) {
  // Without an id to resume after, the stream repeats everything.
  let fromStart = position.lastEventId === null;
  await followEvents(`${path}/events`, {
    signal,
    lastEventId: position.lastEventId,
    onEvent: ({ event, data, id }) => {
      if (fromStart) view.clear();
      fromStart = false;
      position.lastEventId = id;
      return takeEvent(view, event, JSON.parse(data));
    },
  });
  // Aborted, or ended: the document has the final output, with the URLs of its files.
  if (!signal.aborted) await readDocument(view, path, signal);
}

/**
 * @param {RunView} view
 * @param {string} event
 * @param {any} data
 * @returns {boolean} whether it is the last event
 */
function takeEvent(view, event, data) {
  if (event === 'output') view.takeOutput(data.index, data.value);
  else if (event === 'logs') view.takeLogs(data.text);
  else if (event === 'restarted') {
    view.restarts += 1;
    view.clear();
  } else if (event === 'job' || event === 'end') {
    // The status of the end is taken with the document, so that a component sees both at once.
    if (!isEnded(data.status)) view.takeDocument(data);
  }
  return event === 'end';
}

/**
 * @param {RunView} view
 * @param {string} path
 * @param {{lastEventId: string | null}} position
 * @param {AbortSignal} signal
 */
async function poll(view, path, position, signal) {
  await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  if (signal.aborted) return;
  await readDocument(view, path, signal);
  // The document has more than the stream had. A stream that resumed would append it a second time.
  position.lastEventId = null;
}

/**
 * Runs a model of a server without job pages: the answer is the stream itself.
 * @param {RunView} view
 * @param {{path: string, schema: any | null, input: Record<string, unknown>, signal: AbortSignal}} run
 */
export async function runDirectly(view, { path, schema, input, signal }) {
  const started = performance.now();
  view.takeDocument({ status: 'starting', created_at: new Date().toISOString(), input });
  const follow = async () => {
    view.takeDocument({ status: 'starting' });
    const response = await requestAnswer(path, schema, { method: 'POST', json: { input }, signal });
    if (!(response.headers.get('content-type') ?? '').startsWith('text/event-stream')) {
      takeResult(view, await response.json(), started);
      return;
    }
    const parser = new EventParser();
    for await (const text of textChunks(response)) {
      for (const { event, data } of parser.push(text)) takeCogEvent(view, event, JSON.parse(data), started);
    }
    if (!view.ended) view.fail(new ApiError(0, 'The connection ended before the run.'));
  };
  try {
    await whenStreamSlotIsFree(follow, { signal, onWait: () => view.takeDocument({ status: 'queued' }) });
  } catch (error) {
    if (signal.aborted) view.takeDocument({ status: 'canceled' });
    else view.fail(/** @type {Error} */ (error));
  }
}

/**
 * Asks for a stream, or for the whole answer if the model does not stream.
 * @param {string} path
 * @param {any | null} schema
 * @param {import('../lib/api.js').RequestOptions} options
 * @returns {Promise<Response>}
 */
async function requestAnswer(path, schema, options) {
  // A refused request is an error in the console of the browser.
  if (schema !== null && !mayStream(schema)) return request(path, options);
  try {
    return await request(path, { ...options, headers: { Accept: 'text/event-stream' } });
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 406) throw error;
    return request(path, options);
  }
}

/**
 * Whether the schema says that the model streams, or may: Cog streams some of the outputs that are iterators.
 * @param {any} schema the OpenAPI document of the model
 */
function mayStream(schema) {
  const paths = /** @type {any[]} */ (Object.values(schema.paths ?? {}));
  return paths.some((path) => path?.post?.['x-cog-streaming'] === true) || schema.components?.schemas?.Output?.['x-cog-array-type'] === 'iterator';
}

/**
 * @param {RunView} view
 * @param {string} event
 * @param {any} data
 * @param {number} started
 */
function takeCogEvent(view, event, data, started) {
  if (event === 'start') view.takeDocument({ id: data.id, status: 'processing' });
  else if (event === 'output') view.takeOutput(data.index, data.chunk);
  else if (event === 'log') view.takeLogs(data.data);
  else if (event === 'completed') takeResult(view, data, started);
  else if (event === 'error') view.fail(new ApiError(0, String(data.error)));
}

/**
 * @param {RunView} view
 * @param {any} result the body of Cog's response
 * @param {number} started
 */
function takeResult(view, result, started) {
  view.takeDocument({ ...result, output_is_list: Array.isArray(result.output), ran_s: result.metrics?.predict_time ?? (performance.now() - started) / 1000 });
}
