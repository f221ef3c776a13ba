// Bulk actions on jobs: cancel, and run again. Each job is a request of its own, so each has a result
// of its own.

import { requestJob, requestJson } from '../../lib/api.js';
import { fieldsOf } from '../../playground/inputs/fields.js';
import { maskedNames } from '../../playground/inputs/secrets.js';
import { runAgain } from '../../playground/start_run.js';
import { accountOf, isOpen, keyOf } from './rows.js';

/** @typedef {import('./rows.js').JobRow} JobRow */

/**
 * The result for one job. `id` is the new job of "run again".
 * @typedef {{ok: true, text: string, id?: string} | {ok: false, text: string}} Result
 */

/** The actions that the table offers. @typedef {'cancel' | 'rerun'} Action */

/** How many requests are sent at the same time. The browser has six connections for all tabs. */
const AT_ONCE = 3;

/**
 * The jobs of a selection that an action applies to.
 * @param {Action} action
 * @param {JobRow[]} jobs
 * @returns {JobRow[]}
 */
export function applicable(action, jobs) {
  return action === 'cancel' ? jobs.filter(isOpen) : jobs.filter((job) => job.kind === 'prediction');
}

/**
 * Runs an action on every job, a few at a time.
 * @param {JobRow[]} jobs
 * @param {(job: JobRow) => Promise<Result>} act
 * @param {(key: string, result: Result) => void} onResult
 * @returns {Promise<void>}
 */
export async function forEach(jobs, act, onResult) {
  const left = [...jobs];
  const sender = async () => {
    for (let job = left.shift(); job !== undefined; job = left.shift()) {
      const result = await act(job).catch(failure);
      onResult(keyOf(job), result);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, sender));
}

/**
 * Cancels a job.
 * @param {JobRow} job
 * @returns {Promise<Result>}
 */
export async function cancel(job) {
  await requestJson(`admin/jobs/${path(accountOf(job), job.id)}/cancel`, { method: 'POST' });
  return { ok: true, text: 'canceled' };
}

/**
 * Submits the input of a job as a new job of the same model.
 * @param {JobRow} job
 * @returns {Promise<Result>}
 */
export async function rerun(job) {
  const document = await requestJob(`ui/api/jobs/${path(accountOf(job), job.id)}`);
  if (document.private) return { ok: false, text: 'the input belongs to another account' };
  if (document.data_removed || document.input == null) return { ok: false, text: 'the input has been removed' };
  const model = await requestJson(modelPath(document));
  const secrets = maskedNames(document.input, fieldsOf(model.schema));
  if (secrets.length > 0) return { ok: false, text: `not run: the server does not return secrets; enter ${secrets.join(', ')} in the playground` };
  const { id, note } = await runAgain(model, document);
  return { ok: true, text: note === null ? 'running again' : `running again ${note}`, id };
}

/**
 * How many results are good and bad, as one sentence.
 * @param {Action} action
 * @param {Result[]} results
 * @returns {string}
 */
export function resultSummary(action, results) {
  const good = results.filter((result) => result.ok).length;
  const bad = results.length - good;
  const done = `${good} ${good === 1 ? 'job' : 'jobs'} ${action === 'cancel' ? 'canceled' : 'started again'}`;
  return bad === 0 ? `${done}.` : `${done}, ${bad} failed.`;
}

/**
 * The path that describes how to run a job's model or Runpod endpoint.
 * @param {{model: string, endpoint?: string}} job
 * @returns {string}
 */
export function modelPath({ model, endpoint }) {
  return endpoint === undefined ? `ui/api/models/${path(...model.split('/'))}` : `ui/api/endpoints/${path(endpoint)}`;
}

/**
 * @param {unknown} error
 * @returns {Result}
 */
function failure(error) {
  return { ok: false, text: error instanceof Error ? error.message : String(error) };
}

/** @param {...string} segments */
function path(...segments) {
  return segments.map(encodeURIComponent).join('/');
}
