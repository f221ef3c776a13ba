// The history of the server as the columns that a chart draws.
//
// The server sends at most 180 buckets of the last quarter of an hour, oldest first. A server that has
// just started has fewer; the time axis then has one of two shorter lengths, so that it seldom changes.

/**
 * The section `history` of the server.
 * @typedef {object} History
 * @property {number} step_s length of a bucket in seconds
 * @property {number} end end of the last bucket, in seconds since 1970
 * @property {number[]} requests
 * @property {number[]} errors
 * @property {number[]} waiting
 * @property {number[]} in_flight
 * @property {(number | null)[]} p50
 * @property {(number | null)[]} p95
 * @property {(number | null)[]} p99
 */

/** @typedef {'requests' | 'errors' | 'waiting' | 'in_flight' | 'p50' | 'p95' | 'p99'} SeriesName */

/** The columns of a chart: the times, then the values of each series. @typedef {(number | null)[][]} Columns */

/** The lengths of the time axis, in seconds. The last one is as long as the server's memory. */
const SPANS_S = [120, 300, 900];
const LONGEST_S = 900;

/**
 * The times of the buckets, in seconds since 1970: the end of each.
 * @param {History} history
 * @returns {number[]}
 */
export function times(history) {
  const n = Math.min(history.requests.length, Math.floor(LONGEST_S / history.step_s));
  return Array.from({ length: n }, (_, i) => history.end - (n - 1 - i) * history.step_s);
}

/**
 * The columns of a chart for the named series.
 * @param {History} history
 * @param {SeriesName[]} names
 * @param {'value' | 'per_second'} [unit] `per_second` divides the sums of buckets by their length
 * @returns {Columns}
 */
export function columns(history, names, unit = 'value') {
  const xs = times(history);
  const divisor = unit === 'per_second' ? history.step_s : 1;
  /** @param {(number | null)[]} values */
  const column = (values) => {
    const last = values.slice(Math.max(0, values.length - xs.length));
    /** @type {(number | null)[]} */
    const missing = Array.from({ length: xs.length - last.length }, () => null);
    return [...missing, ...last.map((value) => (value == null ? null : value / divisor))];
  };
  return [xs, ...names.map((name) => column(history[name] ?? []))];
}

/**
 * The range of the time axis: the shortest that has all buckets.
 * @param {History} history
 * @returns {[number, number]}
 */
export function span(history) {
  const known = history.requests.length * history.step_s;
  const length = SPANS_S.find((seconds) => seconds >= known) ?? LONGEST_S;
  return [history.end - length, history.end];
}

/**
 * The rows of a column whose value has none before and none behind it. A line does not show them.
 * @param {ArrayLike<number | null | undefined>} column
 * @returns {number[]}
 */
export function isolated(column) {
  return Array.from(column, (_value, at) => at).filter((at) => column[at] != null && column[at - 1] == null && column[at + 1] == null);
}

/**
 * The upper end of a value axis: at least `least`, with some space above the largest value.
 * @param {Columns} data
 * @param {number} least
 * @returns {number}
 */
export function top(data, least) {
  return Math.max(least, ...data.slice(1).map((column) => largest(column) * 1.1));
}

/**
 * What a chart shows, as one text for screen readers.
 * @param {string} title
 * @param {{label: string}[]} series
 * @param {Columns} data
 * @param {(value: number | null) => string} format
 * @returns {string}
 */
export function summary(title, series, data, format) {
  const parts = series.map(({ label }, i) => {
    const column = (data[i + 1] ?? []).filter((value) => value != null);
    if (column.length === 0) return `${label}: no data`;
    return `${label}: last ${format(column[column.length - 1])}, highest ${format(largest(column))}`;
  });
  return `${title} in the last 15 minutes. ${parts.join('; ')}.`;
}

/**
 * @param {(number | null)[]} column
 * @returns {number}
 */
function largest(column) {
  return column.reduce((/** @type {number} */ max, value) => Math.max(max, value ?? 0), 0);
}
