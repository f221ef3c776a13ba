// The UI of a platform: endpoints whose jobs wait for workers.

import assert from 'node:assert/strict';
import { assertAccessible, browserTest, url } from './browser.mjs';

browserTest('a job of an endpoint waits, has a page and is canceled', {}, async (page) => {
  await page.goto(`${url}/ui/endpoints/echo`);
  await page.getByLabel('Input as JSON').fill('{"text": "tide"}');
  await page.keyboard.press('Control+Enter');
  await page.locator('.run-head .badge', { hasText: 'queued' }).waitFor();
  await page.locator('.run-panel').getByText('Waiting for a worker').waitFor();
  // The time goes on while the job waits.
  await page.locator('.timeline-legend', { hasText: /waited\s*[1-9](\.\d)? s/ }).waitFor();
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
});
