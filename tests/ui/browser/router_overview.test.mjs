// The overview of a router: its models and their backends.

import assert from 'node:assert/strict';

import { assertAccessible, assertNoSidewaysScroll, browserTest, PHONE, url, variable } from './browser.mjs';

const BACKEND = new URL(variable('BACKEND'));

browserTest('a router shows the backends of its models', { viewport: PHONE }, async (page) => {
  await page.goto(`${url}/ui/overview`);
  const panel = page.getByRole('region', { name: 'Routed models' });
  await panel.getByRole('heading', { name: 'm', exact: true }).waitFor();
  await panel.getByText(BACKEND.host).first().waitFor();
  await panel.getByText('healthy').first().waitFor();
  const pages = await page.getByRole('navigation', { name: 'Pages' }).getByRole('link').allTextContents();
  assert.ok(!pages.includes('Jobs'), 'a router has no jobs');
  await assertNoSidewaysScroll(page);
  await assertAccessible(page);
});
