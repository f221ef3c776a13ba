// The web UI of an API process of a cluster: a run on a director, its page, and the panels of the cluster.

import { assertAccessible, browserTest, url } from './browser.mjs';

browserTest('a run on a director is streamed, and its page has the output', {}, async (page) => {
  await page.goto(`${url}/ui/`);
  await page.locator('#input-count').fill('2');
  await page.keyboard.press('Control+Enter');
  await page.locator('.run-head .badge', { hasText: 'succeeded' }).waitFor();
  await page.locator('.job-link').first().click();
  await page.locator('.run-panel', { hasText: 'value 1' }).waitFor();
});

browserTest('the overview has the director and the API processes', {}, async (page) => {
  await page.goto(`${url}/ui/overview`);
  await page.getByText('d1', { exact: true }).first().waitFor();
  await page.getByRole('heading', { name: 'Directors' }).waitFor();
  await page.getByRole('heading', { name: 'API processes' }).waitFor();
  await assertAccessible(page);
});
