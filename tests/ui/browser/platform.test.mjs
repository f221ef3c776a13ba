// The UI of a platform: endpoints whose jobs wait for workers.

import assert from 'node:assert/strict';
import { assertAccessible, browserTest, call, url } from './browser.mjs';

const INPUT = { text: 'tide', seed: 7 };

/** The input in the editor of the playground. */
const edited = async (/** @type {any} */ page) => JSON.parse(await page.getByLabel('Input as JSON').inputValue());

/** The input on the page of a job. */
const shown = async (/** @type {any} */ page) => JSON.parse(await page.getByRole('region', { name: 'input' }).innerText());

browserTest('a job of an endpoint waits, has a page, is canceled and runs again on a worker', {}, async (page) => {
  await page.goto(`${url}/ui/endpoints/echo`);
  await page.locator('.state-line .badge', { hasText: 'no workers' }).waitFor();
  await page.getByRole('region', { name: 'the command' }).getByText(`tidegate endpoints env echo --url ${url}`).waitFor();
  await page.getByLabel('Input as JSON').fill(JSON.stringify(INPUT));
  await page.keyboard.press('Control+Enter');
  await page.locator('.run-head .badge', { hasText: 'queued' }).waitFor();
  await page.locator('.run-panel').getByText('Waiting for a worker').waitFor();
  // The time goes on while the job waits.
  await page.locator('.timeline-legend', { hasText: /waited\s*[1-9](\.\d)? s/ }).waitFor();
  await page.reload();
  await page.locator('.run-head .badge', { hasText: 'queued' }).waitFor();
  await page.waitForFunction(() => /** @type {HTMLTextAreaElement} */ (document.getElementById('input-json')).value.includes('tide'));
  assert.deepEqual(await edited(page), INPUT);
  await page.getByRole('tab', { name: 'Code' }).click();
  await page.getByRole('button', { name: 'Python (runpod)' }).click();
  await page.getByRole('region', { name: 'Python (runpod) code' }).getByText('runpod.Endpoint("echo")').waitFor();
  await page.locator('.job-link').click();
  await page.getByRole('region', { name: 'input' }).getByText('tide').waitFor();
  assert.deepEqual(await shown(page), INPUT);
  await page.locator('.facts').getByText(/\d s ago/).waitFor();
  await page.getByRole('button', { name: /^Cancel/ }).waitFor();
  await page.keyboard.press('Escape');
  await page.locator('.job-head .badge', { hasText: 'canceled' }).waitFor();
  await assertAccessible(page);
  const first = new URL(page.url()).pathname;
  await page.getByRole('button', { name: 'Run again' }).click();
  await page.waitForFunction((path) => location.pathname !== path, first);
  const job = await call('v2/echo/job-take/w?gpu=x&job_in_progress=0');
  assert.deepEqual([job.id, job.input], [new URL(page.url()).pathname.split('/').at(-1), INPUT]);
  await call(`v2/echo/job-done/w/${job.id}?gpu=x`, { body: { output: job.input } });
  await page.locator('.job-head .badge', { hasText: 'succeeded' }).waitFor();
  assert.deepEqual(await shown(page), INPUT);
  const document = await call(`ui/api/jobs/~/${job.id}`);
  assert.deepEqual([document.input, document.output], [INPUT, INPUT]);
  await page.getByRole('button', { name: 'Open in playground' }).click();
  await page.getByText('The inputs come from a link').waitFor();
  assert.deepEqual(await edited(page), INPUT);
  assert.match(new URL(page.url()).pathname, /\/ui\/endpoints\/echo$/);
});
