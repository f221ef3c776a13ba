// Output files of another host, where `--upload-url` puts them: shown as the content security policy allows.

import { browserTest, url, variable } from './browser.mjs';

browserTest('an image of the files store is shown and opened, not read', {}, async (page) => {
  await page.goto(`${url}/ui/`);
  await page.getByRole('form', { name: 'Input' }).waitFor();
  await page.keyboard.press('Control+Enter');
  await page.waitForFunction(() => {
    const images = [...document.querySelectorAll('.run-panel img')];
    return images.length === 3 && images.every((image) => /** @type {HTMLImageElement} */ (image).naturalWidth === 160);
  });
  await page.locator(`.run-panel a[href^="${variable('FILES_ORIGIN')}"]`, { hasText: 'Open' }).first().waitFor();
});
