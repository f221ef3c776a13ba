// Requests to the server, with the token. Every failure is an `ApiError`.

import { parseExact, writeExact } from './exact_json.js';
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
    body: json === undefined ? rest.body : writeExact(json),
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
 * Reads the document of a job. The integers of its input are exact, so that it can be sent again.
 * @param {string} path
 * @param {RequestOptions} [options]
 * @returns {Promise<any>}
 */
export async function requestJob(path, options) {
  const response = await request(path, options);
  const text = await response.text();
  return { ...JSON.parse(text), input: parseExact(text).input };
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
  const candidates = [body?.error?.message, body?.error, body?.detail, listed(body?.detail), body?.title, body?.message, body?.errors?.[0]?.message];
  return candidates.find((value) => typeof value === 'string' && value !== '') ?? null;
}

/**
 * Cog's list of errors, `{loc: ["body", "input", NAME, …], msg}`, as one text.
 * @param {any} detail
 */
function listed(detail) {
  if (!Array.isArray(detail)) return null;
  const lines = detail.filter((entry) => typeof entry?.msg === 'string').map(({ loc, msg }) => {
    const path = Array.isArray(loc) ? loc.slice(loc[0] === 'body' ? 1 : 0).join('.') : '';
    return path === '' ? msg : `${path}: ${msg}`;
  });
  return lines.join('\n');
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
    for (const { type, field, description } of body.invalid_fields) {
      addError(fields, pathOf({ type, field, description }), String(description));
    }
  }
  // Cog's format: `detail` is a list of {loc: ["body", "input", NAME, …], msg}.
  if (Array.isArray(body?.detail)) {
    for (const { loc, msg } of body.detail) addError(fields, withoutStart(Array.isArray(loc) ? loc.map(String) : []), String(msg));
  }
  return fields;
}

/**
 * The path of an invalid field: the input, and where in its value.
 * @param {{type?: string, field: string, description: string}} error
 * @returns {string[]}
 */
function pathOf({ type, field, description }) {
  // A missing input is an error of `input`; only the description names it.
  const missing = type === 'required' ? /^(\S+) is required$/.exec(description) : null;
  return missing === null ? withoutStart(String(field).split('.')) : missing[1].split('/');
}

/** @param {string[]} path */
function withoutStart(path) {
  const start = path[0] === 'body' ? 1 : 0;
  return path[start] === 'input' && path.length > start + 1 ? path.slice(start + 1) : path.slice(start);
}

/**
 * Adds the message of a path to those of its input.
 * @param {Record<string, string>} fields
 * @param {string[]} path
 * @param {string} message
 */
function addError(fields, [name = 'input', ...rest], message) {
  const place = rest.map((part) => (/^\d+$/.test(part) ? `entry ${Number(part) + 1}` : part)).join(', ');
  const text = place === '' ? message : `${place}: ${message}`;
  fields[name] = fields[name] === undefined ? text : `${fields[name]}; ${text}`;
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
