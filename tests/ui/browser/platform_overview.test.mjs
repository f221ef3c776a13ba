// The overview of a platform: endpoints with their workers.

import assert from 'node:assert/strict';

import { WAIT_MS, assertAccessible, browserTest, call, url } from './browser.mjs';

browserTest('an endpoint without workers says that its jobs wait', {}, async (page) => {
  await page.goto(`${url}/ui/overview`);
  const panel = page.getByRole('region', { name: 'Endpoints' });
  await panel.getByRole('link', { name: 'echo' }).waitFor();
  await panel.getByText('No worker is connected.').waitFor();
  const { id } = await call('v2/echo/run', { body: { input: {} } });
  await panel.getByText('Jobs wait, but no worker is connected.').waitFor();
  await panel.getByText('1 waiting, 0 running, 0 workers').waitFor();
  await assertAccessible(page);
  await page.goto(`${url}/ui/jobs?status=open`);
  await page.getByLabel(`Select job ${id}`).check();
  await page.getByRole('button', { name: 'Cancel 1 job' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel 1 job' }).click();
  await page.getByText('1 job canceled.').waitFor();
  // The cancel is recorded; the job ends soon after.
  const until = Date.now() + WAIT_MS;
  let status;
  do {
    ({ status } = await call(`v2/echo/status/${id}`));
  } while (status === 'IN_QUEUE' && Date.now() < until);
  assert.equal(status, 'CANCELLED');
});
