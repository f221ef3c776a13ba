// Text of the dashboard that `lib/format.js` does not have: rates, latencies, errors in one line.

import { duration, number } from '../lib/format.js';

/**
 * A rate with up to three digits. Small rates do not become 0.
 * @param {number | null | undefined} perSecond
 * @returns {string}
 */
export function rate(perSecond) {
  if (perSecond == null || !Number.isFinite(perSecond)) return '–';
  if (perSecond > 0 && perSecond < 0.01) return '<0.01';
  return perSecond >= 100 ? number(Math.round(perSecond)) : number(Math.round(perSecond * 100) / 100);
}

/**
 * A latency with about three digits: `840 µs`, `12.5 ms`, `1.24 s`, `3 min 5 s`.
 * @param {number | null | undefined} seconds
 * @returns {string}
 */
export function latency(seconds) {
  if (seconds == null || !Number.isFinite(seconds)) return '–';
  if (seconds <= 0) return '0 ms';
  if (seconds < 0.000_999_5) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 0.9995) return `${digits(seconds * 1e3)} ms`;
  return seconds < 59.95 ? `${digits(seconds)} s` : duration(seconds);
}

/**
 * The first line of a job's error, without the words that the status says already.
 * @param {string} error
 * @returns {string}
 */
export function firstLine(error) {
  return error.replace(/^(Prediction|Training) failed: /, '').split('\n', 1)[0];
}

/**
 * The short form of a version, which is a long hash.
 * @param {string | null | undefined} version
 * @returns {string}
 */
export function shortVersion(version) {
  return version ? version.slice(0, 12) : '–';
}

/** @param {number} value */
function digits(value) {
  const text = value >= 99.95 ? value.toFixed(0) : value >= 9.995 ? value.toFixed(1) : value.toFixed(2);
  return text.includes('.') ? text.replace(/\.?0+$/, '') : text;
}
