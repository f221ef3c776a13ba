// The values of a form. An input that is not in the object is unset: it is not sent, and the model uses
// its default. An empty text is a value.

import { ExactInteger, integerOf, parseExact, writeExact } from '../../lib/exact_json.js';

/** @typedef {import('./fields.js').Field} Field */

/** Files up to this size are sent inside the request. */
export const MOST_INLINE_BYTES = 256 * 1024;

/** How many files were chosen since the page was opened. */
let chosenFiles = 0;

/** A file of the user's disk that is not sent yet. */
export class LocalFile {
  /** @param {File} file */
  constructor(file) {
    this.file = file;
    chosenFiles += 1;
    /** The text that stands for the file in JSON mode. Two files may have the same name. */
    this.marker = `file:${chosenFiles}:${file.name}`;
  }
}

/** A JSON text of the user that is not valid yet. */
export class Unparsed {
  /**
   * @param {string} text
   * @param {string} error
   */
  constructor(text, error) {
    this.text = text;
    this.error = error;
  }

  toJSON() {
    return this.text;
  }
}

/** @typedef {Record<string, unknown>} Values */

/**
 * The messages of the inputs whose text is not valid JSON.
 * @param {Values} values
 * @returns {Record<string, string>}
 */
export function unparsedErrors(values) {
  const invalid = Object.entries(values).filter(([, value]) => value instanceof Unparsed);
  return Object.fromEntries(invalid.map(([name, value]) => [name, /** @type {Unparsed} */ (value).error]));
}

/**
 * The number that a text means, or the text itself, which the server rejects with a message.
 * @param {string} text
 * @returns {number | ExactInteger | string}
 */
export function numberOf(text) {
  const trimmed = text.trim();
  if (/^[+-]?\d+$/.test(trimmed)) return integerOf(trimmed.replace(/^\+/, ''));
  if (trimmed === '' || !/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(trimmed)) return text;
  const value = Number(trimmed);
  return Number.isFinite(value) ? value : text;
}

/**
 * Replaces every local file in a value.
 * @param {unknown} value
 * @param {(file: LocalFile) => unknown} replace
 * @returns {any}
 */
export function mapFiles(value, replace) {
  if (value instanceof LocalFile) return replace(value);
  if (value instanceof Unparsed) return value.text;
  if (value instanceof ExactInteger) return value;
  if (Array.isArray(value)) return value.map((entry) => mapFiles(entry, replace));
  if (value !== null && typeof value === 'object') {
    return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, mapFiles(entry, replace)]));
  }
  return value;
}

/**
 * The values as the text of JSON mode, with a marker for each file.
 * @param {Values} values
 */
export function toText(values) {
  return writeExact(mapFiles(values, (file) => file.marker), 2);
}

/**
 * Reads the text of JSON mode. Markers become the files they stand for.
 * @param {string} text
 * @param {Values} previous values that contain the files
 * @returns {{values: Values} | {error: string}}
 */
export function fromText(text, previous) {
  /** @type {Map<string, LocalFile>} */
  const files = new Map();
  mapFiles(previous, (file) => { files.set(file.marker, file); });
  let parsed;
  try {
    parsed = parseExact(text, (value) => (typeof value === 'string' ? files.get(value) ?? value : value));
  } catch (error) {
    return { error: `Not valid JSON: ${/** @type {Error} */ (error).message}` };
  }
  if (parsed === null || typeof parsed !== 'object' || Array.isArray(parsed)) return { error: 'The input must be a JSON object.' };
  return { values: parsed };
}

/**
 * The values without the entries of file lists that have no file yet.
 * @param {Values} values
 * @param {Field[]} fields
 * @returns {Values}
 */
export function withoutEmptyFiles(values, fields) {
  const lists = new Set(fields.filter((field) => field.item?.kind === 'file').map((field) => field.name));
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, lists.has(name) && Array.isArray(value) ? value.filter((entry) => entry !== '') : value]));
}

/**
 * Sends large files to the server and returns the input for the request.
 * @param {Values} values
 * @param {(file: File) => Promise<string>} upload returns the URL of the uploaded file
 * @returns {Promise<Record<string, unknown>>}
 */
export async function toInput(values, upload) {
  /** @type {Map<LocalFile, string>} */
  const urls = new Map();
  /** @type {Promise<unknown>[]} */
  const pending = [];
  mapFiles(values, (file) => {
    const sent = file.file.size <= MOST_INLINE_BYTES ? dataUri(file.file) : upload(file.file);
    pending.push(sent.then((url) => urls.set(file, url)));
  });
  await Promise.all(pending);
  return mapFiles(values, (file) => urls.get(file));
}

/**
 * @param {File} file
 * @returns {Promise<string>}
 */
async function dataUri(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let binary = '';
  // In pieces, because a call has a limited number of arguments.
  for (let at = 0; at < bytes.length; at += 0x8000) binary += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return `data:${mediaTypeOf(file)};base64,${btoa(binary)}`;
}

/**
 * The media type of a file, without parameters.
 * @param {{type: string}} file
 */
export function mediaTypeOf({ type }) {
  return /^[\w.+-]+\/[\w.+-]+$/.test(type) ? type : 'application/octet-stream';
}
