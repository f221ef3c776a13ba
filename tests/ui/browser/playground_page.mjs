// The playground of the models that its tests run.

import { url } from './browser.mjs';

export const kinds = `${url}/ui/models/local/ui_kinds`;
export const many = `${url}/ui/models/local/many`;
export const chat = `${url}/ui/models/local/chat_words`;

/** The panel shows this status. */
export const status = (/** @type {any} */ page, /** @type {string} */ name) => page.locator('.run-head .badge', { hasText: name }).waitFor();

/** Runs the form and waits for its end. */
export async function run(/** @type {any} */ page, /** @type {string} */ end = 'succeeded') {
  await page.getByRole('form', { name: 'Input' }).waitFor();
  await page.keyboard.press('Control+Enter');
  await status(page, end);
}

/** The output of the run that the page shows, as the server's API has it. */
export async function outputOf(/** @type {any} */ page) {
  await page.getByRole('tab', { name: 'Raw' }).click();
  const text = await page.getByRole('region', { name: 'answer' }).innerText();
  return JSON.parse(text).output;
}

export const field = (/** @type {any} */ page, /** @type {string} */ name) => page.locator(`#input-${name}`);
