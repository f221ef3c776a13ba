// Takes the screenshots of the web UI: node scripts/screenshots.mjs URL JOB FOLDER PAGE… See screenshots.py.
//
// TIDEGATE_TEST_UI_FOLDER is read as in tests/ui/browser/browser.mjs, whose watched pages this uses.

import path from 'node:path';

const [url, job, folder, ...names] = process.argv.slice(2);
process.env.TEST_URL = url;
const { browser, DESKTOP, openPage, PHONE } = await import('../tests/ui/browser/browser.mjs');

/** The pages, each with what must be there before the picture. */
const PAGES = [
  { name: 'playground', path: 'models/local/streaming', ready: runOnce },
  { name: 'job', path: `jobs/${job}`, ready: (page) => page.getByText('succeeded').first().waitFor() },
  { name: 'overview', path: 'overview', ready: (page) => page.locator('.chart canvas').nth(2).waitFor() },
  { name: 'jobs', path: 'jobs', ready: (page) => page.locator('.job-id').nth(10).waitFor() },
];

/** How long animations and the last change of the live data may take. */
const SETTLE_MS = 1200;

/**
 * Runs the model of the page with an input, and waits for its output.
 * @param {any} page
 */
async function runOnce(page) {
  await page.getByLabel('prompt').first().fill('The tide');
  await page.getByRole('button', { name: /^Run/ }).first().click();
  await page.getByText('The tide is on its way').first().waitFor();
  await page.evaluate(() => window.scrollTo(0, 0));
}

let failures = 0;
for (const scheme of /** @type {const} */ (['light', 'dark'])) {
  for (const [width, viewport] of [[1280, DESKTOP], [390, PHONE]]) {
    for (const shot of PAGES.filter(({ name }) => names.includes(name))) {
      const { context, page, problems } = await openPage({ viewport, scheme });
      await page.goto(`${url}/ui/${shot.path}`);
      await shot.ready(page).catch((error) => problems.push(String(error)));
      await page.waitForTimeout(SETTLE_MS);
      const seen = [...problems];
      await page.screenshot({ path: path.join(folder, `ui-${shot.name}-${width}-${scheme}.png`) });
      await context.close();
      if (seen.length > 0) console.error(`${shot.name} ${width} ${scheme}:`, seen);
      failures += seen.length;
    }
  }
}
await (await browser()).close();
process.exit(failures === 0 ? 0 : 1);
