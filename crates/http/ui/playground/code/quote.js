// Values as literals of a language: every text of the user becomes code that means exactly that text.

import { ExactInteger } from '../../lib/exact_json.js';

/**
 * A word of a POSIX shell.
 * @param {string} text
 */
export function shell(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/**
 * A string literal of Python.
 * @param {string} text
 */
export function pythonString(text) {
  let literal = '"';
  for (const character of text) {
    const code = /** @type {number} */ (character.codePointAt(0));
    if (character === '"' || character === '\\') literal += `\\${character}`;
    else if (character === '\n') literal += '\\n';
    else if (character === '\r') literal += '\\r';
    else if (character === '\t') literal += '\\t';
    else if (isInvisible(code)) literal += code > 0xffff ? `\\U${hex(code, 8)}` : `\\u${hex(code, 4)}`;
    else literal += character;
  }
  return `${literal}"`;
}

/**
 * A string literal of JavaScript.
 * @param {string} text
 */
export function javascriptString(text) {
  let literal = "'";
  for (const character of text) {
    const code = /** @type {number} */ (character.codePointAt(0));
    if (character === "'" || character === '\\') literal += `\\${character}`;
    else if (character === '\n') literal += '\\n';
    else if (character === '\r') literal += '\\r';
    else if (character === '\t') literal += '\\t';
    else if (isInvisible(code)) literal += `\\u{${code.toString(16)}}`;
    else literal += character;
  }
  return `${literal}'`;
}

/**
 * Control, format, surrogate and line separator characters: they would break the line, hide code or not
 * survive the clipboard.
 * @param {number} code
 */
function isInvisible(code) {
  return /^[\p{C}\p{Zl}\p{Zp}\u00a0]$/u.test(String.fromCodePoint(code));
}

/**
 * @param {number} code
 * @param {number} digits
 */
function hex(code, digits) {
  return code.toString(16).padStart(digits, '0');
}

/** A part of a value that is already code, such as a call that reads a file. */
export class Code {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }
}

/**
 * A literal of Python for a JSON value.
 * @param {unknown} value
 * @param {number} [depth]
 * @returns {string}
 */
export function python(value, depth = 0) {
  if (value === null || value === undefined) return 'None';
  if (value === true) return 'True';
  if (value === false) return 'False';
  if (typeof value === 'string') return pythonString(value);
  return composite(value, depth, python, (key) => `${pythonString(key)}: `);
}

/**
 * A literal of JavaScript for a JSON value.
 * @param {unknown} value
 * @param {number} [depth]
 * @returns {string}
 */
export function javascript(value, depth = 0) {
  if (typeof value === 'string') return javascriptString(value);
  if (value instanceof ExactInteger) return `JSON.rawJSON('${value}')`;
  // As a plain property, `__proto__` would set the prototype; computed, it is a key.
  const key = (/** @type {string} */ name) => (name === '__proto__' ? "['__proto__']: " : `${/^[A-Za-z_]\w*$/.test(name) ? name : javascriptString(name)}: `);
  return composite(value, depth, javascript, key);
}

/**
 * @param {unknown} value
 * @param {number} depth
 * @param {(value: unknown, depth: number) => string} literal
 * @param {(key: string) => string} keyOf
 */
function composite(value, depth, literal, keyOf) {
  if (value instanceof Code) return value.text;
  if (value === null || typeof value !== 'object' || value instanceof ExactInteger) return String(value);
  const inner = '    '.repeat(depth + 1);
  const outer = '    '.repeat(depth);
  const isList = Array.isArray(value);
  const parts = isList
    ? value.map((entry) => literal(entry, depth + 1))
    : Object.entries(value).map(([key, entry]) => keyOf(key) + literal(entry, depth + 1));
  const [open, close] = isList ? '[]' : '{}';
  if (parts.length === 0) return open + close;
  return `${open}\n${parts.map((part) => `${inner}${part},\n`).join('')}${outer}${close}`;
}
