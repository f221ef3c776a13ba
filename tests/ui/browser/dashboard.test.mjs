// The overview, the jobs table, the configuration and the API docs.

import assert from 'node:assert/strict';
import fs from 'node:fs';

import { assertAccessible, assertNoSidewaysScroll, browserTest, call, PHONE, url, variable, WAIT_MS } from './browser.mjs';

const ADMIN = variable('ADMIN');
const USER = variable('USER');
const GATE = variable('GATE');
const HOSTILE = '<img src=x onerror=alert(1)>';

/**
 * Starts a job of `ann/echo` as the user and returns its id.
 * @param {Record<string, unknown>} input
 * @param {string} [token]
 */
async function start(input, token = USER) {
  const job = await call('v1/models/ann/echo/predictions', { token, headers: { Prefer: 'respond-async' }, body: { input } });
  return job.id;
}

/**
 * Waits until a job has a status.
 * @param {string} id
 * @param {string} status
 */
async function ends(id, status) {
  const deadline = Date.now() + WAIT_MS;
  for (;;) {
    const job = await call(`v1/predictions/${id}`, { token: USER });
    if (job.status === status) return;
    assert.ok(Date.now() < deadline, `job ${id} is ${job.status}, not ${status}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/**
 * Waits until a function of the page's tile with this label is true for its text.
 * @param {any} page
 * @param {string} label
 * @param {RegExp} pattern
 */
async function tileShows(page, label, pattern) {
  const value = page.locator('.tile', { has: page.locator(`dt:text-is("${label}")`) }).locator('.tile-value');
  await value.filter({ hasText: pattern }).waitFor();
}

browserTest('the numbers of the overview change under a small load', { token: ADMIN }, async (page) => {
  await page.goto(`${url}/ui/overview`);
  await tileShows(page, 'Waiting', /^0$/);
  const blocked = await Promise.all(Array.from({ length: 4 }, () => start({ gate: GATE })));
  await tileShows(page, 'Waiting', /^3$/);
  await tileShows(page, 'Requests/s', /^(<0\.01|0\.\d+|[1-9].*)$/);
  await page.locator('tr', { hasText: 'ann/echo' }).getByText('1 of 1 busy').waitFor();
  const queue = page.getByRole('table', { name: 'Queues' }).getByRole('row', { name: /ann\/echo/ });
  await queue.getByText('alice').waitFor();
  await queue.getByText('3 waiting, 1 running').waitFor();
  fs.writeFileSync(GATE, '');
  await tileShows(page, 'Waiting', /^0$/);
  await tileShows(page, 'Latency p50', /\d+.* (µs|ms|s)$/);
  for (const id of blocked) await ends(id, 'succeeded');
  fs.rmSync(GATE);
  assert.equal(await page.locator('.chart canvas').count(), 3);
});

browserTest('every model has its health, and its processes and setup logs on demand', { token: ADMIN }, async (page) => {
  await page.goto(`${url}/ui/overview`);
  const models = page.getByRole('table', { name: 'Models' });
  await models.getByRole('row', { name: /bob\/steps.*ready/ }).waitFor();
  const failed = models.getByRole('row', { name: /ann\/setup_fails.*setup failed/ });
  await failed.getByRole('button', { name: /Processes and setup logs/ }).click();
  await page.getByRole('region', { name: 'setup logs of ann/setup_fails' }).getByText('about to fail').waitFor();
  await models.getByRole('button', { name: 'Processes and setup logs of ann/echo' }).click();
  await page.getByRole('table', { name: 'Processes of ann/echo' }).getByText('idle').waitFor();
  await assertAccessible(page);
});

browserTest('jobs are filtered, and the filters are in the URL', { token: ADMIN }, async (page) => {
  const good = await start({ text: 'fine' });
  const bad = await start({ fail: HOSTILE });
  await ends(good, 'succeeded');
  await ends(bad, 'failed');
  await page.goto(`${url}/ui/jobs`);
  const rows = page.getByRole('table', { name: 'Jobs' }).locator('tbody tr');
  await rows.filter({ hasText: good }).waitFor();

  await page.getByLabel('Status').selectOption('failed');
  await page.waitForURL(/status=failed/);
  await rows.filter({ hasText: good }).waitFor({ state: 'detached' });
  await rows.filter({ hasText: bad }).getByText(HOSTILE).waitFor();
  assert.equal(await page.locator('td img').count(), 0, 'an error is text');

  await page.getByRole('button', { name: 'Clear filters' }).click();
  await page.getByLabel('Id begins with').fill(good.slice(0, 12));
  await page.waitForURL(new RegExp(`id_prefix=${good.slice(0, 12)}`));
  await rows.filter({ hasText: bad }).waitFor({ state: 'detached' });
  assert.equal(await rows.count(), 1);

  await page.getByLabel('Account').fill('nobody');
  await page.getByText('No job matches these filters').waitFor();
  await page.goBack();
  await rows.filter({ hasText: good }).waitFor();
  await assertAccessible(page);
});

browserTest('selected jobs are canceled together', { token: ADMIN }, async (page) => {
  const ids = await Promise.all(Array.from({ length: 5 }, () => start({ gate: GATE })));
  await page.goto(`${url}/ui/jobs?status=open`);
  const rows = page.getByRole('table', { name: 'Jobs' }).locator('tbody tr');
  for (const id of ids) await rows.filter({ hasText: id }).waitFor();
  await page.getByLabel('Select all jobs of this page').check();
  await page.getByRole('button', { name: 'Cancel 5 jobs' }).click();
  const dialog = page.getByRole('dialog', { name: 'Cancel 5 jobs?' });
  await assertAccessible(page);
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Cancel 5 jobs' }).click();
  await dialog.getByRole('button', { name: 'Cancel 5 jobs' }).click();
  await page.getByText('5 jobs canceled.').waitFor();
  for (const id of ids) {
    await rows.filter({ hasText: id }).locator('.cell-error').getByText('canceled').waitFor();
    await ends(id, 'canceled');
  }
});

browserTest('jobs run again under new ids', { token: USER }, async (page) => {
  const id = await start({ text: 'once more' });
  await ends(id, 'succeeded');
  await page.goto(`${url}/ui/jobs?id_prefix=${id}`);
  await page.getByLabel(`Select job ${id}`).check();
  await page.getByRole('button', { name: 'Run 1 job again' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Run 1 job again' }).click();
  const link = page.getByRole('link', { name: 'open the new job' });
  await link.waitFor();
  const again = new URL(await link.getAttribute('href')).pathname.split('/').at(-1);
  assert.notEqual(again, id);
  await ends(String(again), 'succeeded');
  const job = await call(`v1/predictions/${again}`, { token: USER });
  assert.equal(job.output, 'once more');
});

browserTest('the input of another account is not sent again', { token: ADMIN }, async (page) => {
  const id = await start({ text: 'private' });
  await ends(id, 'succeeded');
  await page.goto(`${url}/ui/jobs?id_prefix=${id}`);
  await page.getByLabel(`Select job ${id}`).check();
  await page.getByRole('button', { name: 'Run 1 job again' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Run 1 job again' }).click();
  await page.getByText('the input belongs to another account').waitFor();
});

browserTest('rows do not move under the pointer', { token: ADMIN }, async (page) => {
  const before = await start({ text: 'before' });
  await ends(before, 'succeeded');
  await page.goto(`${url}/ui/jobs?account=alice&status=over`);
  const rows = page.getByRole('table', { name: 'Jobs' }).locator('tbody tr');
  await rows.first().filter({ hasText: before }).hover();
  const after = await start({ text: 'after' });
  await ends(after, 'succeeded');
  await page.getByRole('button', { name: 'Show 1 new job' }).waitFor();
  await rows.first().filter({ hasText: before }).waitFor();
  await page.getByRole('button', { name: 'Show 1 new job' }).click();
  await rows.first().filter({ hasText: after }).waitFor();
});

browserTest('older jobs are on the next page', { token: ADMIN }, async (page) => {
  const ids = await Promise.all(Array.from({ length: 60 }, (_, n) => start({ text: `job ${n}` })));
  for (const id of ids) await ends(id, 'succeeded');
  await page.goto(`${url}/ui/jobs`);
  const rows = page.getByRole('table', { name: 'Jobs' }).locator('tbody tr');
  await rows.nth(49).waitFor();
  assert.equal(await rows.count(), 50);
  const newest = await rows.locator('.job-id').allTextContents();
  await page.getByRole('button', { name: 'Older jobs' }).click();
  await page.waitForURL(/before=/);
  await rows.filter({ hasText: newest[0] }).waitFor({ state: 'detached' });
  await rows.first().waitFor();
  const older = await rows.locator('.job-id').allTextContents();
  assert.deepEqual(older.filter((id) => newest.includes(id)), []);
  await page.getByRole('button', { name: 'Newest jobs' }).click();
  await rows.nth(49).waitFor();
});

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
