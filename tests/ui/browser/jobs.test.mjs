// The jobs table: filters, pages, bulk actions.

import assert from 'node:assert/strict';

import { assertAccessible, browserTest, call, url, variable } from './browser.mjs';
import { ADMIN, ends, start, USER } from './echo_jobs.mjs';

const GATE = variable('GATE');
const HOSTILE = '<img src=x onerror=alert(1)>';

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
  await rows.filter({ hasText: good }).waitFor();
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

for (const [name, take] of /** @type {[string, (row: any) => Promise<void>][]} */ ([
  ['pointer', (row) => row.hover()],
  ['keyboard focus', (row) => row.getByRole('link').focus()],
])) {
  browserTest(`rows do not move under the ${name}`, { token: ADMIN }, async (page) => {
    const before = await start({ text: 'before' });
    await ends(before, 'succeeded');
    await page.goto(`${url}/ui/jobs?account=alice&status=over`);
    const rows = page.getByRole('table', { name: 'Jobs' }).locator('tbody tr');
    await take(rows.first().filter({ hasText: before }));
    const after = await start({ text: 'after' });
    await ends(after, 'succeeded');
    await page.getByRole('button', { name: 'Show 1 new job' }).waitFor();
    await rows.first().filter({ hasText: before }).waitFor();
    await page.getByRole('button', { name: 'Show 1 new job' }).click();
    await rows.first().filter({ hasText: after }).waitFor();
  });
}

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
