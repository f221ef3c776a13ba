// The columns of the charts.

import assert from 'node:assert/strict';
import test from 'node:test';

import { columns, isolated, span, summary, times, top } from '../dashboard/series.js';

/** @param {Partial<import('../dashboard/series.js').History>} parts */
const history = (parts) => ({ step_s: 5, end: 1000, requests: [], errors: [], waiting: [], in_flight: [], p50: [], p95: [], p99: [], ...parts });

test('the last bucket ends at the end of the history', () => {
  assert.deepEqual(times(history({ requests: [1, 2, 3] })), [990, 995, 1000]);
});

test('requests are divided by the length of a bucket', () => {
  const data = columns(history({ requests: [10, 0], errors: [5, 0] }), ['requests', 'errors'], 'per_second');
  assert.deepEqual(data, [[995, 1000], [2, 0], [1, 0]]);
});

test('a percentile without requests stays a gap', () => {
  assert.deepEqual(columns(history({ requests: [1, 0], p50: [0.5, null] }), ['p50'])[1], [0.5, null]);
});

test('a value without neighbours is drawn as a point', () => {
  assert.deepEqual(isolated([0, null, 0, null, 5, 6, null, 7]), [0, 2, 7]);
  assert.deepEqual(isolated([null, undefined, 1, 2]), []);
});

test('a shorter series is aligned at the end', () => {
  assert.deepEqual(columns(history({ requests: [1, 2, 3], p95: [7] }), ['p95'])[1], [null, null, 7]);
});

test('an empty history has empty columns', () => {
  assert.deepEqual(columns(history({}), ['requests', 'errors']), [[], [], []]);
});

test('the time axis is a quarter of an hour long, or shorter for a server that has just started', () => {
  const length = (/** @type {number} */ buckets) => {
    const [from, to] = span(history({ requests: Array(buckets).fill(0) }));
    return to - from;
  };
  assert.deepEqual([1, 24, 25, 61, 180].map(length), [120, 120, 300, 900, 900]);
});

test('the value axis has space above the largest value and never collapses', () => {
  assert.equal(top([[1, 2], [0, 0], [null, 0]], 1), 1);
  assert.equal(top([[1, 2], [0, 10], [null, 20]], 1), 22);
});

test('the summary names the last and the highest value', () => {
  const text = summary('Requests', [{ label: 'requests' }, { label: 'errors' }], [[1, 2], [4, 2], [null, null]], String);
  assert.equal(text, 'Requests in the last 15 minutes. requests: last 2, highest 4; errors: no data.');
});
