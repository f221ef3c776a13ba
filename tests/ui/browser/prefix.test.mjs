// The UI below a prefix of a reverse proxy: every address is relative to it.

import assert from 'node:assert/strict';
import { browserTest, url } from './browser.mjs';

browserTest('a run and its page below a prefix', {}, async (page) => {
  const outside = [];
  page.on('request', (/** @type {any} */ request) => {
    if (!request.url().startsWith(`${url}/`)) outside.push(request.url());
  });
  await page.goto(`${url}/ui/`);
  await page.getByRole('form', { name: 'Input' }).waitFor();
  await page.keyboard.press('Control+Enter');
  await page.locator('.run-head .badge', { hasText: 'succeeded' }).waitFor();
  await page.locator('.job-link').click();
  await page.getByRole('heading', { level: 1 }).waitFor();
  await page.reload();
  await page.locator('.job-head .badge', { hasText: 'succeeded' }).waitFor();
  await page.locator('.run-panel').getByText('hello world').waitFor();
  assert.deepEqual(outside, []);
});
