// Starts a run with the public API's own request, and cancels it.

import { request, requestJson } from '../lib/api.js';

/** @typedef {import('../lib/types.d.ts').ModelDetail} ModelDetail */

/**
 * Submits a job and returns its id. Fails with `ApiError`, whose `fields` belong to inputs.
 * @param {ModelDetail['run']} run
 * @param {Record<string, unknown>} input
 * @returns {Promise<string>}
 */
export async function submitJob({ path, style, fields }, input) {
  /** @type {Record<string, string>} */
  const headers = style === 'replicate' ? { Prefer: 'respond-async' } : {};
  const answer = await requestJson(path, { method: 'POST', json: { ...fields, input }, headers });
  return String(answer.id);
}

/**
 * How one of the versions of a model is run.
 * @param {Pick<ModelDetail, 'run' | 'version'>} detail
 * @param {string | null} version
 * @returns {ModelDetail['run']}
 */
export function runOfVersion({ run, version: current }, version) {
  if (run.style !== 'replicate' || version === null || version === current) return run;
  return { style: 'replicate', path: 'v1/predictions', fields: { version } };
}

/**
 * Runs the input of a job again: on the job's own version while the model has it, otherwise on the current
 * one. `note` says so when that is another version.
 * @param {Pick<ModelDetail, 'run' | 'version' | 'versions'>} detail
 * @param {{version?: string | null, input: Record<string, unknown>}} job
 * @returns {Promise<{id: string, note: string | null}>}
 */
export async function runAgain(detail, { version = null, input }) {
  const { run, version: current, versions } = detail;
  const isServed = version === current || versions.some((known) => known.version === version && known.runnable);
  if (run.style !== 'replicate' || version === null || isServed) return { id: await submitJob(runOfVersion(detail, version), input), note: null };
  const note = `on version ${current?.slice(0, 12)}, because version ${version.slice(0, 12)} is no longer served`;
  return { id: await submitJob(run, input), note };
}

/**
 * @param {string} account
 * @param {string} id
 */
export async function cancelJob(account, id) {
  await request(`admin/jobs/${encodeURIComponent(account)}/${encodeURIComponent(id)}/cancel`, { method: 'POST' });
}

/**
 * Uploads a file and returns its URL.
 * @param {File} file
 * @returns {Promise<string>}
 */
export async function uploadFile(file) {
  const body = new FormData();
  body.append('content', file, file.name);
  const answer = await requestJson('v1/files', { method: 'POST', body });
  return String(answer.urls.get);
}

/**
 * The path of the job in the public API, whose answer the page shows as raw text.
 * @param {{api?: string, id?: string, model?: string, endpoint?: string, kind?: string}} job
 * @returns {string | null}
 */
export function publicJobPath({ api, id, model, endpoint, kind }) {
  if (id === undefined) return null;
  const name = encodeURIComponent(id);
  if (api === 'runpod') return `v2/${encodeURIComponent(endpoint ?? model ?? '')}/status/${name}`;
  if (api === 'replicate') return `v1/${kind === 'training' ? 'trainings' : 'predictions'}/${name}`;
  if (api === 'cog') return `predictions/${name}`;
  return null;
}
