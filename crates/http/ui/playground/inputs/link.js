// Inputs in the fragment of a link to the playground. Secrets and files never travel in a link.

import { isMasked } from './secrets.js';
import { LocalFile } from './values.js';

/** @typedef {import('./fields.js').Field} Field */

const SECRET_NAME = /secret|passw|token|api_?key|credential/i;

/**
 * Splits values into those that may be in a link, and the names of those that may not.
 * @param {Record<string, unknown>} values
 * @param {Field[]} fields
 * @returns {{shared: Record<string, unknown>, omitted: string[]}}
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
  return field === undefined && SECRET_NAME.test(name);
}

/**
 * @param {unknown} value
 * @returns {boolean}
 */
function hasFile(value) {
  if (value instanceof LocalFile) return true;
  if (typeof value === 'string') return /^data:/i.test(value);
  if (value !== null && typeof value === 'object') {
    return Object.entries(value).some(([name, entry]) => SECRET_NAME.test(name) || hasFile(entry));
  }
  return false;
}

/**
 * The fragment for the values: `#input=…`.
 * @param {Record<string, unknown>} shared
 */
export function fragmentOf(shared) {
  return `#input=${encodeURIComponent(JSON.stringify(shared))}`;
}

/**
 * The values in a fragment, or null.
 * @param {string} fragment
 * @returns {Record<string, unknown> | null}
 */
export function valuesOfFragment(fragment) {
  const match = /^#input=(.*)$/s.exec(fragment);
  if (match === null) return null;
  try {
    const values = JSON.parse(decodeURIComponent(match[1]));
    return values !== null && typeof values === 'object' && !Array.isArray(values) ? values : null;
  } catch {
    return null;
  }
}
