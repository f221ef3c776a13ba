// The attempts of a job.

import assert from 'node:assert/strict';
import test from 'node:test';

import { timesOf } from '../playground/output/attempts.js';

test('an attempt has its begin, and its end with the time between', () => {
  const start = '2024-05-01T10:00:00Z';
  const attempt = { number: 1, started_at: start };
  assert.match(timesOf(attempt), /^began 2024-05-01 \d\d:00:00$/);
  const ended = timesOf({ ...attempt, ended_at: '2024-05-01T10:02:05Z', end: 'lost' });
  assert.match(ended, /^2024-05-01 \d\d:00:00 – 2024-05-01 \d\d:02:05, 2 min 5 s$/);
  assert.equal(timesOf({ number: 2 }), '');
});
