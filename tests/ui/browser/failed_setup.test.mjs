// The playground of a model that could not be loaded: why, and what its setup printed.

import assert from 'node:assert/strict';

import { assertAccessible, browserTest, PHONE, url, variable } from './browser.mjs';

const REASON = variable('REASON');

browserTest('the first screen says why the model could not be loaded', {}, async (page) => {
  await page.goto(`${url}/ui/`);
  await page.locator('.state-line', { hasText: 'setup failed' }).getByText(REASON).waitFor();
  const panel = page.locator('.run-panel');
  await panel.getByText('The model could not be loaded').waitFor();
  const logs = panel.getByLabel('Setup logs');
  await logs.getByText('Traceback').waitFor();
  const box = await logs.boundingBox();
  assert.ok(box.y < 400, 'without scrolling');
  await assertAccessible(page);
});

browserTest('the open page is visible in the navigation of a phone', { viewport: PHONE }, async (page) => {
  await page.goto(`${url}/ui/config`);
  const current = page.locator('.nav [aria-current=page]');
  await current.getByText('Configuration').waitFor();
  const { x, width } = await current.boundingBox();
  assert.ok(x >= 0 && x + width <= PHONE.width, `${x} to ${x + width}`);
});
