// The UI of a router: it keeps no jobs, so a run is the answer of its own request.

import assert from 'node:assert/strict';
import { assertAccessible, browserTest, url } from './browser.mjs';

browserTest('a model of Cog streams its output without a job', {}, async (page) => {
  await page.goto(`${url}/ui/models/local/many`);
  await page.locator('#input-count').fill('3');
  await page.keyboard.press('Control+Enter');
  await page.locator('.run-head .badge', { hasText: 'succeeded' }).waitFor();
  await page.locator('.run-panel').getByText('2:xxxxxxxx').waitFor();
  assert.equal(await page.locator('.job-link').count(), 0);
  await assertAccessible(page);
});

browserTest('a model without streams runs with the example of its backend', { allowed: [/status of 422/] }, async (page) => {
  await page.goto(`${url}/ui/models/local/ui_kinds`);
  await page.locator('#input-title').waitFor();
  await page.keyboard.press('Control+Enter');
  await page.locator('.run-head .badge', { hasText: 'succeeded' }).waitFor();
  await page.locator('.run-panel').getByText('plain').waitFor();
  await page.locator('#input-steps').fill('99');
  await page.keyboard.press('Control+Enter');
  await page.locator('.run-head .badge', { hasText: 'failed' }).waitFor();
  await page.locator('#input-steps-error').getByText('99').waitFor();
});

browserTest('Escape ends a run that is not a job', {}, async (page) => {
  await page.goto(`${url}/ui/models/local/many`);
  await page.locator('#input-gate').fill('/nonexistent/gate');
  await page.locator('#input-hold_at').fill('1');
  await page.keyboard.press('Control+Enter');
  await page.locator('.run-panel').getByText('0:xxxxxxxx').waitFor();
  await page.keyboard.press('Escape');
  await page.locator('.run-head .badge', { hasText: 'canceled' }).waitFor();
});

browserTest('a chat model has only its chat view', {}, async (page) => {
  await page.goto(`${url}/ui/models/local/chat_words`);
  await page.getByLabel('Message', { exact: true }).fill('over the router');
  await page.keyboard.press('Enter');
  await page.locator('.message.assistant', { hasText: 'over the router' }).waitFor();
  await page.getByRole('button', { name: 'Send' }).waitFor();
  assert.equal(await page.getByRole('button', { name: 'Form', exact: true }).count(), 0);
});
