// JSON with integers that a JavaScript number cannot hold, such as seeds of 64 bits. They are kept as
// text. `JSON.rawJSON` would do this, but not every browser has it.

/** An integer above 2^53, as text. */
export class ExactInteger {
  /** @param {string} text digits, with a minus sign before them if it is negative */
  constructor(text) {
    this.text = text;
  }

  toString() {
    return this.text;
  }
}

/** A JSON string, or a number. */
const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const INTEGER = /^-?\d+$/;
/** Shorter integers are exact as numbers. */
const EXACT_DIGITS = 15;

/**
 * The integer with these digits: a number if that is exact.
 * @param {string} text
 * @returns {number | ExactInteger}
 */
export function integerOf(text) {
  const value = Number(text);
  return Number.isSafeInteger(value) ? value : new ExactInteger(BigInt(text).toString());
}

/**
 * Reads JSON. Integers that a number cannot hold become `ExactInteger`.
 * @param {string} text
 * @param {(value: unknown) => unknown} [revive] replaces values, the inner ones first
 * @returns {any}
 */
export function parseExact(text, revive = (value) => value) {
  const plain = () => JSON.parse(text, (_key, value) => revive(value));
  if (!/\d{16}/.test(text)) return plain();
  const parsed = plain();
  const mark = unusedMark(text);
  let marked = 0;
  const source = text.replace(TOKEN, (token) => {
    if (token.length <= EXACT_DIGITS || !INTEGER.test(token) || typeof integerOf(token) === 'number') return token;
    marked += 1;
    return `"${mark}${token}"`;
  });
  if (marked === 0) return parsed;
  return JSON.parse(source, (_key, value) => (typeof value === 'string' && value.startsWith(mark) ? integerOf(value.slice(mark.length)) : revive(value)));
}

/**
 * Writes JSON, with the digits of each `ExactInteger`.
 * @param {unknown} value
 * @param {number} [indent]
 * @param {(value: unknown) => unknown} [replace] replaces values, the outer ones first
 * @returns {string}
 */
export function writeExact(value, indent, replace = (entry) => entry) {
  let found = false;
  const write = (/** @type {string} */ mark) => JSON.stringify(value, (_key, entry) => {
    const replaced = replace(entry);
    if (!(replaced instanceof ExactInteger)) return replaced;
    found = true;
    return mark + replaced.text;
  }, indent);
  const text = write('');
  if (!found) return text;
  const mark = unusedMark(text);
  return write(mark).replace(new RegExp(`"${mark}(-?\\d+)"`, 'g'), '$1');
}

/**
 * Letters that the text does not contain.
 * @param {string} text
 */
function unusedMark(text) {
  let mark = 'integer';
  while (text.includes(mark)) mark += '_';
  return mark;
}
