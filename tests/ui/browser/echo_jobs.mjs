// Jobs of the model `ann/echo`, which the tests of the dashboard start as a user.

import assert from 'node:assert/strict';

import { call, variable, WAIT_MS } from './browser.mjs';

/** The tokens of an administrator and of the user `alice`. */
export const ADMIN = variable('ADMIN');
export const USER = variable('USER');

/**
 * Starts a job and returns its id.
 * @param {Record<string, unknown>} input
 * @param {string} [token]
 * @returns {Promise<string>}
 */
export async function start(input, token = USER) {
  const job = await call('v1/models/ann/echo/predictions', { token, headers: { Prefer: 'respond-async' }, body: { input } });
  return job.id;
}

/**
 * Waits until a job of the user has a status.
 * @param {string} id
 * @param {string} status
 */
export async function ends(id, status) {
  const deadline = Date.now() + WAIT_MS;
  for (;;) {
    const job = await call(`v1/predictions/${id}`, { token: USER });
    if (job.status === status) return;
    assert.ok(Date.now() < deadline, `job ${id} is ${job.status}, not ${status}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
