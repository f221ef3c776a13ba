// Trainings and trained versions in Chromium: train a model, run what was trained, and choose a version.

import assert from 'node:assert/strict';
import { assertAccessible, browserTest, url } from './browser.mjs';

const learns = `${url}/ui/models/local/learns`;

/** The panel shows this status. */
const status = (/** @type {any} */ page, /** @type {string} */ name) => page.locator('.run-head .badge', { hasText: name }).waitFor();

async function train(/** @type {any} */ page, /** @type {string} */ word) {
  await page.locator('#input-word').fill(word);
  await page.getByRole('button', { name: 'Run' }).click();
  await status(page, 'succeeded');
}

browserTest('a training creates a model that can be run', {}, async (page) => {
  await page.goto(learns);
  await page.getByRole('button', { name: 'Train' }).click();
  assert.equal(await page.locator('#training-destination').inputValue(), 'anonymous/learns-trained');
  await train(page, 'salve');
  await assertAccessible(page);
  // A reload attaches to the training, in its own form.
  await page.reload();
  await status(page, 'succeeded');
  assert.equal(await page.locator('#input-word').inputValue(), 'salve');
  await page.getByRole('link', { name: 'anonymous/learns-trained' }).click();
  await page.locator('#input-name').fill('Ada');
  await page.getByRole('button', { name: 'Run' }).click();
  await page.locator('.run-panel', { hasText: 'greeting.txt salve Ada' }).waitFor();
  await page.goto(`${url}/ui/`);
  await page.locator('.model-card', { hasText: 'anonymous/learns-trained' }).locator('.tag', { hasText: 'trained' }).waitFor();
});

browserTest('a trained version of a served model is chosen by its id', {}, async (page) => {
  await page.goto(`${learns}?task=train`);
  await page.locator('#training-destination').fill('local/learns');
  await train(page, 'ave');
  await page.goto(learns);
  const choice = page.getByLabel('Version');
  const trained = await choice.locator('option', { hasText: 'trained' }).getAttribute('value');
  await choice.selectOption(trained);
  await page.locator('#input-name').fill('Bob');
  await page.getByRole('button', { name: 'Run' }).click();
  await page.locator('.run-panel', { hasText: 'greeting.txt ave Bob' }).waitFor();
  await page.getByRole('tab', { name: 'Code' }).click();
  await page.locator('.code-panel', { hasText: `"version":"${trained}"` }).waitFor();
});
