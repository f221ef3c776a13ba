// Webhook messages: their attempts, and replay.

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
