// The text of rates, latencies and errors.

import assert from 'node:assert/strict';
import test from 'node:test';

import { firstLine, latency, rate, shortVersion } from '../dashboard/format.js';

test('a small rate is not shown as zero', () => {
  assert.deepEqual([0, 0.001, 0.25, 7.456, 12.34, 1234.5].map(rate), ['0', '<0.01', '0.25', '7.46', '12.3', '1,235']);
  assert.equal(rate(null), '–');
});

test('a latency has about three digits in the unit that fits', () => {
  const values = [0, 0.00084, 0.00126, 0.0125, 0.84, 1.237, 12, 59.99, 185];
  const texts = ['0 ms', '840 µs', '1.26 ms', '12.5 ms', '840 ms', '1.24 s', '12 s', '1 min', '3 min 5 s'];
  assert.deepEqual(values.map(latency), texts);
  assert.equal(latency(undefined), '–');
});

test('an error is its first line without the words of the status', () => {
  assert.equal(firstLine('Prediction failed: ValueError: no\nsecond line'), 'ValueError: no');
  assert.equal(firstLine('out of memory'), 'out of memory');
});

test('a version is cut, and may be absent', () => {
  assert.equal(shortVersion('0123456789abcdef'), '0123456789ab');
  assert.equal(shortVersion(null), '–');
});
