// Webhook messages: their attempts, and replay.

import assert from 'node:assert/strict';

import { assertAccessible, browserTest, call, url, variable } from './browser.mjs';

const ADMIN = variable('ADMIN');
const HOOK = variable('HOOK');

browserTest('a delivered webhook is sent again', { token: ADMIN }, async (page) => {
  await page.goto(`${url}/ui/deliveries`);
  await page.getByText('No webhooks yet').waitFor();
  const job = await call('predictions', { token: ADMIN, body: { input: { text: 'x' }, webhook: HOOK, webhook_events_filter: ['completed'] } });
  const row = page.getByRole('row', { name: new RegExp(job.id) });
  await row.getByText('delivered').waitFor();
  await row.getByRole('button', { name: /^Attempts of message/ }).click();
  await page.getByRole('table', { name: 'Attempts' }).getByText('status 200').waitFor();
  await row.getByRole('button', { name: /^Replay/ }).click();
  await page.getByText('The message is sent again.').waitFor();
  await page.getByRole('table', { name: 'Attempts' }).getByText('status 200').nth(1).waitFor();
  await assertAccessible(page);
});

browserTest('the page of a job has the last attempts to send its webhooks', { token: ADMIN }, async (page) => {
  const body = { input: { text: 'x' }, webhook: variable('GONE'), webhook_events_filter: ['completed'] };
  const job = await call('predictions', { token: ADMIN, body });
  await page.goto(`${url}/ui/jobs/${job.id}`);
  const webhooks = page.locator('.deliveries li').first();
  // The page shows the attempts as the server makes them.
  await webhooks.getByText('retrying').waitFor();
  await webhooks.getByRole('link', { name: /^\d+ earlier attempts?$/ }).waitFor({ timeout: 30_000 });
  assert.equal(await webhooks.locator('ol li').count(), 3);
  await assertAccessible(page);
});
