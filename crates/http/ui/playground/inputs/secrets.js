// Secret inputs of earlier jobs. The server never returns a secret: its value is a mask, which must not
// be sent as if it were the secret.

/** @typedef {import('./fields.js').Field} Field */

/** What the server returns in place of a secret. */
const MASK = '**********';

/**
 * Whether a value of a job's input stands for a secret. The mask counts without a schema too: an endpoint
 * has none, and the job's version may have had another one.
 * @param {unknown} value
 * @param {Field | undefined} field
 */
export function isMasked(value, field) {
  return value === MASK || (field?.kind === 'secret' && value != null);
}

/**
 * Whether an input has names. That of an endpoint's job may be any JSON value.
 * @param {unknown} input
 * @returns {input is Record<string, unknown>}
 */
export function hasNames(input) {
  return input !== null && typeof input === 'object' && !Array.isArray(input);
}

/**
 * The names of the inputs of a job that the server did not return.
 * @param {unknown} input
 * @param {Field[]} fields
 * @returns {string[]}
 */
export function maskedNames(input, fields) {
  if (!hasNames(input)) return [];
  const byName = new Map(fields.map((field) => [field.name, field]));
  return Object.keys(input).filter((name) => isMasked(input[name], byName.get(name)));
}

/**
 * The input of a job with its secrets unset, for a form.
 * @param {Record<string, unknown>} input
 * @param {Field[]} fields
 * @returns {Record<string, unknown>}
 */
export function withoutSecrets(input, fields) {
  const masked = new Set(maskedNames(input, fields));
  return Object.fromEntries(Object.entries(input).filter(([name]) => !masked.has(name)));
}
