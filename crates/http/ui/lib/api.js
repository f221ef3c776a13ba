// Requests to the server, with the token. Every failure is an `ApiError`.

import { isBelow, rootUrl } from './root.js';
import { token } from './token.js';

/** A request that failed, with the server's message. */
export class ApiError extends Error {
  /**
   * @param {number} status HTTP status; 0 if there was no answer
   * @param {string} message
   * @param {Record<string, string>} fields messages by the name of the input
   */
  constructor(status, message, fields = {}) {
    super(message);
    this.name = 'ApiError';
    this.status = status;
    this.fields = fields;
  }
}

/** Dispatched on `window` when the server does not accept the token. */
export const UNAUTHORIZED = 'tidegate-unauthorized';

/**
 * @typedef {object} RequestOptions
 * @property {string} [method]
 * @property {unknown} [json] body, sent as JSON
 * @property {BodyInit} [body]
 * @property {Record<string, string>} [headers]
 * @property {AbortSignal} [signal]
 */

/**
 * Sends a request. The path is relative to the server's root.
 * @param {string} path
 * @param {RequestOptions} [options]
 * @returns {Promise<Response>} an answer with a status below 400
 */
export async function request(path, options = {}) {
  const url = new URL(path, rootUrl);
  /** @type {Response} */
  let response;
  try {
    response = await send(url, options);
  } catch (cause) {
    if (options.signal?.aborted) throw cause;
    throw new ApiError(0, 'The server does not answer.');
  }
  if (response.ok) return response;
  const error = await errorOf(response);
  if (response.status === 401 && await isSignedOut(url)) window.dispatchEvent(new CustomEvent(UNAUTHORIZED));
  throw error;
}

/**
 * @param {URL} url
 * @param {RequestOptions} options
 * @returns {Promise<Response>}
 */
function send(url, { json, headers = {}, ...rest }) {
  const all = { ...headers };
  const value = token();
  // A path may come from the server's data. The token must never leave this server.
  if (value !== null && isBelow(url, rootUrl)) all.Authorization = `Bearer ${value}`;
  if (json !== undefined) all['Content-Type'] = 'application/json';
  return fetch(url, {
    ...rest,
    headers: all,
    body: json === undefined ? rest.body : JSON.stringify(json),
    credentials: 'omit',
    cache: 'no-store',
  });
}

/** The paths that the server answers itself. A router relays the answers of its backends at others. */
const OWN_PATHS = ['ui/api/', 'admin/'].map((path) => new URL(path, rootUrl));

/**
 * Whether a 401 from a URL means that the server does not accept the token.
 * @param {URL} url
 */
async function isSignedOut(url) {
  if (!isBelow(url, rootUrl)) return false;
  if (OWN_PATHS.some((own) => isBelow(url, own))) return true;
  const session = await send(new URL('ui/api/session', rootUrl), {}).catch(() => null);
  return session?.status === 401;
}

/**
 * Sends a request and reads its answer as JSON.
 * @param {string} path
 * @param {RequestOptions} [options]
 * @returns {Promise<any>}
 */
export async function requestJson(path, options) {
  const response = await request(path, options);
  return response.json();
}

/**
 * Reads the message of a failed request. The APIs have different formats for errors.
 * @param {Response} response
 * @returns {Promise<ApiError>}
 */
async function errorOf(response) {
  const text = await response.text().catch(() => '');
  let body = null;
  try {
    body = JSON.parse(text);
  } catch {
    // Not JSON, for example the page of a proxy.
  }
  return new ApiError(response.status, messageOf(body) ?? shortText(text, response), fieldsOf(body));
}

/**
 * @param {any} body
 * @returns {string | null}
 */
export function messageOf(body) {
  const candidates = [body?.error?.message, body?.error, body?.detail, body?.title, body?.message, body?.errors?.[0]?.message];
  return candidates.find((value) => typeof value === 'string' && value !== '') ?? null;
}

/**
 * The messages of an error that belong to inputs.
 * @param {any} body
 * @returns {Record<string, string>}
 */
export function fieldsOf(body) {
  /** @type {Record<string, string>} */
  const fields = {};
  if (Array.isArray(body?.invalid_fields)) {
    for (const { field, description } of body.invalid_fields) {
      fields[String(field).replace(/^input\./, '')] = String(description);
    }
  }
  // Cog's format: `detail` is a list of {loc: ["body", "input", NAME], msg}.
  if (Array.isArray(body?.detail)) {
    for (const { loc, msg } of body.detail) fields[String(loc?.at(-1))] = String(msg);
  }
  return fields;
}

/**
 * @param {string} text
 * @param {Response} response
 */
function shortText(text, response) {
  const line = text.trim().split('\n')[0];
  if (line !== '' && line.length <= 300 && !line.startsWith('<')) return line;
  return `The server answered ${response.status} ${response.statusText}`.trim();
}
