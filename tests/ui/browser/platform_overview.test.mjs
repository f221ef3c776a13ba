<<<<<<< HEAD
// The overview of a platform: endpoints with their workers.

import assert from 'node:assert/strict';

import { assertAccessible, browserTest, call, url } from './browser.mjs';

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
  const job = await call(`v2/echo/status/${id}`);
  assert.equal(job.status, 'CANCELLED');
=======
// The UI of a platform: endpoints whose jobs wait for workers.

import assert from 'node:assert/strict';
import { assertAccessible, browserTest, url } from './browser.mjs';

browserTest('a job of an endpoint waits, has a page and is canceled', {}, async (page) => {
  await page.goto(`${url}/ui/endpoints/echo`);
  await page.getByLabel('Input as JSON').fill('{"text": "tide"}');
  await page.keyboard.press('Control+Enter');
  await page.locator('.run-head .badge', { hasText: 'queued' }).waitFor();
  await page.getByRole('tab', { name: 'Code' }).click();
  await page.getByRole('button', { name: 'Python (runpod)' }).click();
  await page.getByRole('region', { name: 'Python (runpod) code' }).getByText('runpod.Endpoint("echo")').waitFor();
  await page.locator('.job-link').click();
  await page.getByRole('region', { name: 'input' }).getByText('tide').waitFor();
  await page.getByRole('button', { name: /^Cancel/ }).click();
  await page.locator('.job-head .badge', { hasText: 'canceled' }).waitFor();
  await assertAccessible(page);
  await page.getByRole('button', { name: 'Open in playground' }).click();
  assert.match(await page.getByLabel('Input as JSON').inputValue(), /"tide"/);
  assert.match(new URL(page.url()).pathname, /\/ui\/endpoints\/echo$/);
>>>>>>> b3f0045c29201efc89e60f92cad7464e9b3ae4d0
});
