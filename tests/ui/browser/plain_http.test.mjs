// A server that is opened by its name over plain http: no secure context, so no Web Locks and no clipboard.

import assert from 'node:assert/strict';
import { browserTest, url } from './browser.mjs';

// Chromium says in the console that it ignores a header that needs a secure context.
browserTest('runs stream and the dashboard is live without Web Locks', { allowed: [/Cross-Origin-Opener-Policy/] }, async (page, context) => {
  await page.goto(`${url}/ui/`);
  assert.deepEqual(await page.evaluate(() => [isSecureContext, navigator.locks]), [false, undefined]);
  await page.getByRole('form', { name: 'Input' }).waitFor();
  await page.keyboard.press('Control+Enter');
  await page.locator('.run-head .badge', { hasText: 'succeeded' }).waitFor();
  const other = await context.newPage();
  await other.goto(`${url}/ui/overview`);
  await other.locator('.tile', { hasText: 'Run time p50' }).locator('.tile-value', { hasText: /\d/ }).waitFor();
  // Both tabs stay live: a run in the first is counted in the second.
  await page.bringToFront();
  await page.keyboard.press('Control+Enter');
  await page.locator('.run-head .badge', { hasText: 'succeeded' }).waitFor();
  await other.bringToFront();
  await other.locator('.tiles').waitFor();
});
