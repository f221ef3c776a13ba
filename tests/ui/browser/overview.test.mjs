// The overview: numbers, models, queues.

import assert from 'node:assert/strict';
import fs from 'node:fs';

import { assertAccessible, browserTest, url, variable } from './browser.mjs';
import { ADMIN, ends, start } from './echo_jobs.mjs';

const GATE = variable('GATE');

/**
 * Waits until the tile with this label shows a text.
 * @param {any} page
 * @param {string} label
 * @param {RegExp} pattern
 */
async function tileShows(page, label, pattern) {
  const value = page.locator('.tile', { has: page.locator(`dt:text-is("${label}")`) }).locator('.tile-value');
  await value.filter({ hasText: pattern }).waitFor();
}

browserTest('the numbers of the overview change under a small load', { token: ADMIN }, async (page) => {
  await page.goto(`${url}/ui/overview`);
  await tileShows(page, 'Waiting', /^0$/);
  const blocked = await Promise.all(Array.from({ length: 4 }, () => start({ gate: GATE })));
  await tileShows(page, 'Waiting', /^3$/);
  await tileShows(page, 'Requests/s', /^(<0\.01|0\.\d+|[1-9].*)$/);
  await page.locator('tr', { hasText: 'ann/echo' }).getByText('1 of 1 busy').waitFor();
  const queue = page.getByRole('table', { name: 'Queues' }).getByRole('row', { name: /ann\/echo/ });
  await queue.getByText('alice').waitFor();
  await queue.getByText('3 waiting, 1 running').waitFor();
  fs.writeFileSync(GATE, '');
  await tileShows(page, 'Waiting', /^0$/);
  await tileShows(page, 'Run time p50', /\d+.* (µs|ms|s)$/);
  for (const id of blocked) await ends(id, 'succeeded');
  fs.rmSync(GATE);
  assert.equal(await page.locator('.chart canvas').count(), 3);
});

browserTest('every model has its health, and its processes and setup logs on demand', { token: ADMIN }, async (page) => {
  await page.goto(`${url}/ui/overview`);
  const models = page.getByRole('table', { name: 'Models' });
  await models.getByRole('row', { name: /bob\/steps.*ready/ }).waitFor();
  const failed = models.getByRole('row', { name: /ann\/setup_fails.*setup failed/ });
  await failed.getByRole('button', { name: /Processes and setup logs/ }).click();
  await page.getByRole('region', { name: 'setup logs of ann/setup_fails' }).getByText('about to fail').waitFor();
  await models.getByRole('button', { name: 'Processes and setup logs of ann/echo' }).click();
  await page.getByRole('table', { name: 'Processes of ann/echo' }).getByText('idle').waitFor();
  await assertAccessible(page);
});
