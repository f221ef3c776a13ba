// The configuration, the API docs, what a user sees of the dashboard, and all its pages on a phone.

import assert from 'node:assert/strict';

import { assertAccessible, assertNoSidewaysScroll, browserTest, PHONE, url } from './browser.mjs';
import { ADMIN, start, USER } from './echo_jobs.mjs';

browserTest('the configuration has the origin of each value and no secrets', { token: ADMIN }, async (page) => {
  await page.goto(`${url}/ui/config`);
  const settings = page.getByRole('table', { name: 'Settings' });
  await settings.getByRole('row', { name: /max_body.*32.*environment/ }).waitFor();
  await settings.getByRole('row', { name: /port .*command line/ }).waitFor();
  assert.ok(!(await page.content()).includes(USER), 'tokens are hidden');
  await page.getByLabel('Search settings').fill('max_body');
  await settings.locator('tbody tr').nth(1).waitFor({ state: 'detached' });
  await assertAccessible(page);
});

browserTest('the docs have every API that is on, with an example to copy', { token: USER }, async (page, context) => {
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.goto(`${url}/ui/docs`);
  await page.getByRole('tab', { name: /Replicate/ }).click();
  await page.getByLabel('Search operations').fill('post predictions');
  await page.locator('.operation summary').first().click();
  await page.getByRole('button', { name: /^Copy curl command/ }).first().click();
  const command = await page.evaluate(() => navigator.clipboard.readText());
  assert.match(command, new RegExp(`^curl -X POST '?${url}/v1/`));
  assert.ok(command.includes('-H "Authorization: Bearer $TIDEGATE_API_TOKEN"'));
  await page.getByRole('tab', { name: 'Cog' }).click();
  await page.getByLabel('Model').selectOption('bob/steps');
  await page.locator('.operation').getByText('/models/bob/steps/predictions', { exact: true }).waitFor();
  await assertAccessible(page);
});

browserTest('a user sees the own jobs and no pages of administrators', { token: USER, allowed: [/403/] }, async (page) => {
  const foreign = await start({ text: 'of ops' }, ADMIN);
  const own = await start({ text: 'of alice' });
  await page.goto(`${url}/ui/jobs`);
  await page.getByRole('table', { name: 'Jobs' }).getByText(own).waitFor();
  assert.equal(await page.getByText(foreign).count(), 0);
  assert.equal(await page.getByLabel('Account').count(), 0);
  const names = await page.getByRole('navigation', { name: 'Pages' }).getByRole('link').allTextContents();
  assert.deepEqual(names.filter((name) => ['Overview', 'Configuration'].includes(name)), []);
  await page.goto(`${url}/ui/config`);
  await page.getByRole('alert').waitFor();
});

for (const scheme of /** @type {const} */ (['light', 'dark'])) {
  browserTest(`the pages fit a phone, ${scheme}`, { token: ADMIN, viewport: PHONE, scheme }, async (page) => {
    for (const [name, ready] of [['overview', '.tile'], ['jobs', '.data-table'], ['deliveries', '.empty'], ['config', '.data-table'], ['docs', '.operation']]) {
      await page.goto(`${url}/ui/${name}`);
      await page.locator(ready).first().waitFor();
      await assertNoSidewaysScroll(page);
      await assertAccessible(page);
    }
  });
}
