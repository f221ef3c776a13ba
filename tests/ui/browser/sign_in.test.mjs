// Tokens: the sign-in form, a wrong token, where the token is kept, and what sign-out forgets.

import assert from 'node:assert/strict';
import { assertAccessible, assertNoSidewaysScroll, browserTest, PHONE, url, variable } from './browser.mjs';

const token = variable('USER');
const refused = { allowed: [/status of 401/] };

browserTest('only the sign-in form is shown without a token', refused, async (page) => {
  await page.goto(`${url}/ui/jobs`);
  await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  assert.equal(await page.locator('header, nav').count(), 0);
  await assertAccessible(page);
});

browserTest('a wrong token is refused, a right one is kept for the tab', refused, async (page, context) => {
  await page.goto(`${url}/ui/`);
  await page.getByLabel('API token').fill('wrong');
  await page.keyboard.press('Enter');
  await page.getByRole('alert').getByText('does not accept this token').waitFor();
  await page.getByLabel('API token').fill(token);
  await page.keyboard.press('Enter');
  await page.getByRole('navigation').waitFor();
  await page.getByText('alice').waitFor();
  await page.reload();
  await page.getByText('alice').waitFor();
  assert.equal(await page.evaluate(() => document.cookie), '');
  const other = await context.newPage();
  await other.goto(`${url}/ui/`);
  await other.getByRole('heading', { name: 'Sign in' }).waitFor();
});

browserTest('sign-out forgets the token and the ids of jobs', refused, async (page, context) => {
  await page.goto(`${url}/ui/`);
  await page.getByLabel('API token').fill(token);
  await page.getByLabel('Remember').check();
  await page.keyboard.press('Enter');
  await page.locator('#input-text').waitFor();
  await page.keyboard.press('Control+Enter');
  await page.locator('.run-head .badge', { hasText: 'succeeded' }).waitFor();
  const other = await context.newPage();
  await other.goto(`${url}/ui/`);
  await other.getByText('alice').waitFor();
  await page.getByRole('tab', { name: 'History' }).click();
  await page.locator('.own-runs li').waitFor();
  const stored = await page.evaluate(() => Object.entries(localStorage).filter(([name]) => name.includes(':runs:')).map(([, value]) => value).join());
  assert.doesNotMatch(stored, /input|output/);
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  assert.deepEqual(await page.evaluate(() => [...Object.keys(localStorage), ...Object.keys(sessionStorage)].filter((name) => !name.endsWith(':theme'))), []);
});

browserTest('the sign-in form fits a phone', { ...refused, viewport: PHONE, scheme: 'dark' }, async (page) => {
  await page.goto(`${url}/ui/`);
  await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  await assertNoSidewaysScroll(page);
  await assertAccessible(page);
});
