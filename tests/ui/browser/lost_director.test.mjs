// The page of a job whose director is lost while the page is open: the run begins again, and the attempts are listed.

import assert from 'node:assert/strict';
import fs from 'node:fs';

import { assertAccessible, assertNoSidewaysScroll, browserTest, PHONE, url, variable } from './browser.mjs';

const JOB = variable('JOB');

browserTest('a run that begins again shows its attempts, and the logs of the last one only', {}, async (page) => {
  await page.goto(`${url}/ui/jobs/${JOB}`);
  await page.getByRole('tab', { name: 'Logs' }).click();
  const logs = page.locator('.run-panel .log');
  await logs.getByText('step 0').waitFor();
  assert.equal(await page.locator('.attempt-list').count(), 0, 'one attempt is no list');

  process.kill(Number(variable('DIRECTOR')), 'SIGKILL');
  const attempts = page.locator('.attempt-list li');
  await attempts.nth(1).waitFor({ timeout: 30_000 });
  await attempts.nth(0).filter({ hasText: 'first' }).getByText('lost').waitFor();
  await attempts.nth(1).filter({ hasText: 'second' }).getByText('processing').waitFor();
  await page.locator('.run-head .tag', { hasText: 'attempt 2' }).waitFor();
  await logs.getByText('step 0').waitFor();

  fs.writeFileSync(variable('GATE'), '');
  await attempts.nth(1).getByText('succeeded').waitFor();
  assert.equal((await logs.textContent()).trim(), 'step 0', 'the logs of the lost attempt are void');
  await page.getByRole('tab', { name: 'Output' }).click();
  await page.locator('.run-panel').getByText('value 0').waitFor();
  await assertAccessible(page);
  await page.setViewportSize(PHONE);
  await assertNoSidewaysScroll(page);
  const evidence = process.env.KEEP_SCREENSHOT;
  if (evidence) await page.screenshot({ path: evidence, fullPage: true });
});
