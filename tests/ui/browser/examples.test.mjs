// The first screen of every example: everything a user needs is visible without scrolling, and the first
// run succeeds untouched.

import assert from 'node:assert/strict';
import { browserTest, url, variable } from './browser.mjs';

for (const name of variable('EXAMPLES').split(',')) {
  browserTest(`the first screen of ${name}`, {}, async (page) => {
    await page.goto(`${url}/ui/models/local/${name}`);
    const parts = {
      name: page.getByRole('heading', { level: 1, name: `local/${name}` }),
      state: page.locator('.state-line', { hasText: 'ready' }),
      form: page.getByRole('form', { name: 'Input' }),
      run: page.getByRole('button', { name: /^Run/ }),
      output: page.getByText('The output appears here'),
    };
    for (const [part, locator] of Object.entries(parts)) {
      await locator.waitFor();
      const box = await locator.boundingBox();
      const visible = part === 'form' ? box.y : box.y + box.height;
      assert.ok(visible <= 800, `${part} is below the first screen: ${JSON.stringify(box)}`);
    }
    await page.getByRole('button', { name: /^Run/ }).click();
    await page.locator('.run-head .badge', { hasText: 'succeeded' }).waitFor();
    await page.locator('.run-panel .tab-panel > .stack > *').first().waitFor();
  });
}
