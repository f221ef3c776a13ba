import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ago, bytes, count, duration, number, percent, time } from '../lib/format.js';

test('durations', () => {
  assert.deepEqual([0, 0.0423, 0.9996, 1.25, 9.96, 59.6, 125, 3600, 11_460, 187_200, null, -1].map(duration), ['0 ms', '42 ms', '1.0 s', '1.3 s', '10 s', '1 min', '2 min 5 s', '1 h', '3 h 11 min', '2 d 4 h', '–', '0 ms']);
});

test('sizes', () => {
  assert.deepEqual([0, 1023, 1024, 1536, 1_048_575, 20 * 2 ** 20, 150.4 * 2 ** 30, undefined].map(bytes), ['0 B', '1023 B', '1 KiB', '1.5 KiB', '1 MiB', '20 MiB', '150 GiB', '–']);
});

test('numbers and shares', () => {
  assert.deepEqual([1234567, 0.012345, 12.34, 0, null].map(number), ['1,234,567', '0.0123', '12.3', '0', '–']);
  assert.deepEqual([0, 0.0001, 0.0123, 0.5, 1].map(percent), ['0 %', '<0.1 %', '1.2 %', '50 %', '100 %']);
  assert.deepEqual([count(1, 'job'), count(2000, 'job')], ['1 job', '2,000 jobs']);
});

test('times', () => {
  const now = new Date(2026, 10, 18, 12, 0, 0);
  assert.equal(time(new Date(2026, 10, 18, 9, 5, 7).getTime(), now), '09:05:07');
  assert.equal(time(new Date(2025, 0, 2, 9, 5, 7).getTime(), now), '2025-01-02 09:05:07');
  assert.equal(time('nonsense', now), '–');
  assert.deepEqual([0, 30, 90, 7300, 200_000].map((seconds) => ago(now.getTime() - seconds * 1000, now)), ['just now', '30 s ago', '1 min ago', '2 h ago', '2 d ago']);
});
