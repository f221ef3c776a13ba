// Holds Chromium with a page of the web UI: reads `open URL` and `close` line by line, and answers `done`.
// A closed page is an empty one, so that the browser itself runs all the time.

import { createRequire } from 'node:module';
import path from 'node:path';
import readline from 'node:readline';

const require = createRequire(path.resolve(import.meta.dirname, '../../crates/http/ui/package.json'));
const { chromium } = require('playwright-core');

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
console.log('done');

for await (const line of readline.createInterface({ input: process.stdin })) {
  const [command, url] = line.split(' ');
  if (command === 'open') {
    await page.goto(url);
    await page.locator('.tiles').waitFor();
  } else {
    await page.goto('about:blank');
  }
  console.log('done');
}
await browser.close();
