// A server without models shows a command to paste.

import { assertAccessible, browserTest, url } from './browser.mjs';

browserTest('a server without models shows a command', {}, async (page) => {
  await page.goto(`${url}/ui/`);
  await page.getByText('This server has no models').waitFor();
  await page.getByRole('region', { name: 'command' }).getByText(`tidegate endpoints env my-endpoint --url ${url}`).waitFor();
  await assertAccessible(page);
});
