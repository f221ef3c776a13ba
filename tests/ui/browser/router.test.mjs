// The UI of a router: it keeps no jobs, so a run is the answer of its own request.

import assert from 'node:assert/strict';
import { assertAccessible, browserTest, url } from './browser.mjs';

browserTest('a model of Cog streams its output without a job', {}, async (page) => {
  await page.goto(`${url}/ui/models/local/many`);
  await page.getByLabel('Input as JSON').fill('{"count": 3}');
  await page.keyboard.press('Control+Enter');
  await page.locator('.run-head .badge', { hasText: 'succeeded' }).waitFor();
  await page.locator('.run-panel').getByText('2:xxxxxxxx').waitFor();
  assert.equal(await page.locator('.job-link').count(), 0);
  await assertAccessible(page);
});

browserTest('Escape ends a run that is not a job', {}, async (page) => {
  await page.goto(`${url}/ui/models/local/many`);
  await page.getByLabel('Input as JSON').fill('{"gate": "/nonexistent/gate", "hold_at": 1}');
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
