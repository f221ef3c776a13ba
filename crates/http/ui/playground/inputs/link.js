// Inputs in the fragment of a link to the playground. Secrets and files never travel in a link.

import { ExactInteger, parseExact, writeExact } from '../../lib/exact_json.js';
import { isMasked } from './secrets.js';
import { LocalFile } from './values.js';

/** @typedef {import('./fields.js').Field} Field */

/** Names of texts that are secrets. Numbers, such as `max_tokens`, are not. */
const SECRET_NAME = /secret|passw|passphrase|credential|token$|(api|access|private)_?key/i;

/**
 * Splits values into those that may be in a link, and the names of those that may not.
 * @param {Record<string, unknown>} values
 * @param {Field[]} fields
 * @returns {LinkedInputs}
 */
export function shareable(values, fields) {
  const byName = new Map(fields.map((field) => [field.name, field]));
  /** @type {Record<string, unknown>} */
  const shared = {};
  /** @type {string[]} */
  const omitted = [];
  for (const [name, value] of Object.entries(values)) {
    if (isPrivate(name, value, byName.get(name))) omitted.push(name);
    else shared[name] = value;
  }
  return { shared, omitted };
}

/**
 * @param {string} name
 * @param {unknown} value
 * @param {Field | undefined} field
 */
function isPrivate(name, value, field) {
  const kind = field?.kind === 'list' ? field.item?.kind : field?.kind;
  if (isMasked(value, field) || kind === 'secret' || kind === 'file' || hasFile(value)) return true;
  // Without a schema only the name tells.
  return field === undefined && isSecret(name, value);
}

/**
 * @param {string} name
 * @param {unknown} value
 */
function isSecret(name, value) {
  return SECRET_NAME.test(name) && hasText(value);
}

/**
 * Whether a value is a text or contains one.
 * @param {unknown} value
 * @returns {boolean}
 */
function hasText(value) {
  if (value instanceof ExactInteger) return false;
  if (value !== null && typeof value === 'object') return Object.values(value).some(hasText);
  return typeof value === 'string' && value !== '';
}

/**
 * @param {unknown} value
 * @returns {boolean}
 */
function hasFile(value) {
  if (value instanceof LocalFile) return true;
  if (typeof value === 'string') return /^data:/i.test(value);
  if (value !== null && typeof value === 'object') {
    return Object.entries(value).some(([name, entry]) => isSecret(name, entry) || hasFile(entry));
  }
  return false;
}

/** What a link has: values, and the names of the inputs that it does not have. @typedef {{shared: Record<string, unknown>, omitted: string[]}} LinkedInputs */

/**
 * The fragment for the values: `#input=…`, and `&without=…` if inputs are omitted.
 * @param {LinkedInputs} inputs
 */
export function fragmentOf({ shared, omitted }) {
  const without = omitted.length === 0 ? '' : `&without=${omitted.map(encodeURIComponent).join(',')}`;
  return `#input=${encodeURIComponent(writeExact(shared))}${without}`;
}

/**
 * The inputs in a fragment, or null.
 * @param {string} fragment
 * @returns {LinkedInputs | null}
 */
export function inputsOfFragment(fragment) {
  const match = /^#input=([^&]*)(?:&without=([^&]*))?$/s.exec(fragment);
  if (match === null) return null;
  try {
    const shared = parseExact(decodeURIComponent(match[1]));
    if (shared === null || typeof shared !== 'object' || Array.isArray(shared)) return null;
    return { shared, omitted: match[2] ? match[2].split(',').map(decodeURIComponent) : [] };
  } catch {
    return null;
  }
}
