// Numbers, durations, sizes and times as text for people.

/**
 * A duration: `42 ms`, `1.3 s`, `2 min 5 s`, `3 h 10 min`, `2 d 4 h`.
 * @param {number | null | undefined} seconds
 * @returns {string}
 */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return '–';
  if (seconds < 0) return '0 ms';
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return pair(Math.floor(whole / 60), 'min', whole % 60, 's');
  if (whole < 86_400) return pair(Math.floor(whole / 3600), 'h', Math.floor((whole % 3600) / 60), 'min');
  return pair(Math.floor(whole / 86_400), 'd', Math.floor((whole % 86_400) / 3600), 'h');
}

/**
 * @param {number} large
 * @param {string} largeUnit
 * @param {number} small
 * @param {string} smallUnit
 */
function pair(large, largeUnit, small, smallUnit) {
  return small === 0 ? `${large} ${largeUnit}` : `${large} ${largeUnit} ${small} ${smallUnit}`;
}

/**
 * A size in bytes: `512 B`, `1.5 KiB`, `20 MiB`.
 * @param {number | null | undefined} count
 * @returns {string}
 */
export function bytes(count) {
  if (count === null || count === undefined || !Number.isFinite(count)) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = count;
  let unit = 0;
  while (value >= 1023.5 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 99.95 ? 0 : 1;
  return `${value.toFixed(digits).replace(/\.0$/, '')} ${units[unit]}`;
}

/**
 * A number with separators, and at most three significant digits after a leading zero.
 * @param {number | null | undefined} value
 * @returns {string}
 */
export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  if (Number.isInteger(value)) return value.toLocaleString('en-US');
  return value.toLocaleString('en-US', Math.abs(value) < 10 ? { maximumSignificantDigits: 3 } : { maximumFractionDigits: 1 });
}

/**
 * A share between 0 and 1 as a percentage.
 * @param {number | null | undefined} share
 * @returns {string}
 */
export function percent(share) {
  if (share === null || share === undefined || !Number.isFinite(share)) return '–';
  const value = share * 100;
  if (value > 0 && value < 0.1) return '<0.1 %';
  return `${value.toFixed(value >= 10 || value === 0 ? 0 : 1).replace(/\.0$/, '')} %`;
}

/**
 * A count with its noun: `1 job`, `3 jobs`.
 * @param {number} value
 * @param {string} noun
 */
export function count(value, noun) {
  return `${number(value)} ${noun}${value === 1 ? '' : 's'}`;
}

/**
 * A time in the zone of the browser: the time alone for today, else with its date.
 * @param {string | number | null | undefined} at RFC 3339 or milliseconds
 * @param {Date} [now]
 * @returns {string}
 */
export function time(at, now = new Date()) {
  const date = dateOf(at);
  if (date === null) return '–';
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  if (date.toDateString() === now.toDateString()) return clock;
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock}`;
}

/**
 * How long ago a time was: `5 s ago`, `just now`.
 * @param {string | number | null | undefined} at
 * @param {Date} [now]
 * @returns {string}
 */
export function ago(at, now = new Date()) {
  const date = dateOf(at);
  if (date === null) return '–';
  const seconds = (now.getTime() - date.getTime()) / 1000;
  if (seconds < 1.5) return 'just now';
  if (seconds < 60) return `${Math.round(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86_400)} d ago`;
}

/**
 * @param {string | number | null | undefined} at
 * @returns {Date | null}
 */
function dateOf(at) {
  if (at === null || at === undefined) return null;
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? null : date;
}

/** @param {number} value */
function two(value) {
  return String(value).padStart(2, '0');
}
