// Opens pages of the web UI in Chromium for the tests of this folder.
//
// Every page is watched: a console error, an exception, a dialog, a violation of the content security
// policy or a request to another host fails the test, even if everything else is right.

import assert from 'node:assert/strict';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { after, test } from 'node:test';

const UI = path.resolve(import.meta.dirname, '../../../crates/http/ui');
const require = createRequire(path.join(UI, 'package.json'));
const { chromium } = require('playwright-core');

/** How long a page may take to show what a test waits for. */
export const WAIT_MS = 10_000;

/** The widths that the pages are tested at. */
export const DESKTOP = { width: 1280, height: 800 };
export const PHONE = { width: 390, height: 844 };

/**
 * A variable of the Python test that started this file.
 * @param {string} name
 * @returns {string}
 */
export function variable(name) {
  const value = process.env[`TEST_${name}`];
  assert.ok(value, `TEST_${name} is not set; pytest runs these tests`);
  return value;
}

/** The URL of the server under test, without a slash at its end. */
export const url = variable('URL');

/** Another origin that the pages may load files from. */
const filesOrigin = process.env.TEST_FILES_ORIGIN;

/** The name of the server in a plain http URL, which is no secure context; Chromium finds it on this machine. */
export const PLAIN_HOST = 'tide.test';

/** @type {Promise<any> | null} */
let launched = null;

/** The browser of this file; its tests share it. The shell is Chromium without a window, and takes half the CPU. */
export function browser() {
  // Chromium's own sandbox needs user namespaces, which containers often do not have.
  const args = ['--no-sandbox', `--host-resolver-rules=MAP ${PLAIN_HOST} 127.0.0.1`];
  launched ??= chromium.launch({ executablePath: process.env.TEST_CHROMIUM ?? '/usr/bin/chromium-headless-shell', args });
  return launched;
}

after(async () => {
  await (await launched)?.close();
});

/**
 * @typedef {object} PageOptions
 * @property {string} [token] signs in with it
 * @property {{width: number, height: number}} [viewport]
 * @property {'light' | 'dark'} [scheme]
 * @property {RegExp[]} [allowed] console errors that the test provokes
 */

/**
 * A test with a watched page of its own.
 * @param {string} name
 * @param {PageOptions} options
 * @param {(page: any, context: any) => Promise<void>} run
 */
export function browserTest(name, options, run) {
  test(name, { timeout: 60_000 }, async () => {
    const { context, page, problems } = await openPage(options);
    try {
      await run(page, context);
      assert.deepEqual(problems, [], 'the page must have no problems');
    } catch (error) {
      await keepEvidence(page, name);
      if (problems.length > 0) console.error('problems of the page:', problems);
      throw error;
    } finally {
      await context.close();
    }
  });
}

/**
 * A page in a context of its own: nothing is stored from earlier tests.
 * @param {PageOptions} [options]
 */
export async function openPage({ token, viewport = DESKTOP, scheme = 'light', allowed = [] } = {}) {
  const context = await (await browser()).newContext({ viewport, colorScheme: scheme, acceptDownloads: true });
  context.setDefaultTimeout(WAIT_MS);
  await serveFolder(context);
  if (token !== undefined) await context.addInitScript(keepToken, [new URL(`${url}/`).pathname, token]);
  /** @type {string[]} */
  const problems = [];
  context.on('page', (/** @type {any} */ page) => watch(page, problems, allowed));
  return { context, page: await context.newPage(), problems };
}

/**
 * @param {any} page
 * @param {string[]} problems
 * @param {RegExp[]} allowed
 */
function watch(page, problems, allowed) {
  const report = (/** @type {string} */ text) => {
    if (!allowed.some((pattern) => pattern.test(text))) problems.push(text);
  };
  page.on('console', (/** @type {any} */ message) => {
    if (message.type() === 'error') report(`console: ${message.text()}`);
  });
  page.on('pageerror', (/** @type {Error} */ error) => report(`exception: ${error.stack ?? error}`));
  page.on('dialog', (/** @type {any} */ dialog) => {
    problems.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on('request', (/** @type {any} */ request) => {
    const target = new URL(request.url());
    const local = [new URL(url).origin, filesOrigin].includes(target.origin) || ['data:', 'blob:'].includes(target.protocol);
    if (!local) problems.push(`request to another host: ${request.url()}`);
  });
}

/**
 * Runs in the page, before its own scripts: what the sign-in form does.
 * @param {[string, string]} parts
 */
function keepToken([root, token]) {
  // The empty first document of a page has no storage.
  if (location.origin === 'null') return;
  sessionStorage.setItem(`tidegate:${root}:token`, token);
}

/**
 * With TIDEGATE_TEST_UI_FOLDER the pages come from this folder instead of the program, so that a change
 * of the UI is tested without a build. The headers are the server's.
 * @param {any} context
 */
async function serveFolder(context) {
  const folder = process.env.TIDEGATE_TEST_UI_FOLDER;
  if (folder === undefined) return;
  await context.route(/\/ui\/assets\/folder\//, async (/** @type {any} */ route) => {
    const file = new URL(route.request().url()).pathname.replace(/^.*\/ui\/assets\/folder\//, '');
    await route.fulfill({ path: path.join(folder, file) });
  });
  await context.route(/\/ui\/(?!api\/|assets\/)[^?#]*([?#].*)?$/, async (/** @type {any} */ route) => {
    const response = await route.fetch();
    const depth = new URL(route.request().url()).pathname.replace(/^.*?\/ui\//, '').split('/').length - 1;
    const html = fs.readFileSync(path.join(folder, 'index.html'), 'utf8').replaceAll('{{assets}}', `${'../'.repeat(depth)}assets/folder`);
    await route.fulfill({ response, body: html });
  });
}

/**
 * Keeps a screenshot of a failed test where pytest names the folder.
 * @param {any} page
 * @param {string} name
 */
async function keepEvidence(page, name) {
  const folder = process.env.TEST_EVIDENCE;
  if (folder === undefined) return;
  const file = path.join(folder, `${name.replace(/\W+/g, '_')}.png`);
  await page.screenshot({ path: file }).then(() => console.error(`screenshot: ${file}`), () => {});
}

/**
 * Fails if axe-core finds a serious violation.
 * @param {any} page
 */
export async function assertAccessible(page) {
  await page.evaluate(fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8'));
  // Without `preload` axe does not load style sheets again, which the content security policy reports.
  const violations = await page.evaluate(async () => {
    const { violations: all } = await globalThis.axe.run(document, { resultTypes: ['violations'], preload: false });
    return all.map(({ id, impact, nodes }) => ({ id, impact, html: nodes.map((node) => node.html.slice(0, 200)) }));
  });
  const serious = violations.filter((/** @type {any} */ violation) => ['serious', 'critical'].includes(violation.impact));
  assert.deepEqual(serious, [], `axe-core on ${page.url()}`);
}

/**
 * Fails if the page is wider than the window.
 * @param {any} page
 */
export async function assertNoSidewaysScroll(page) {
  const extra = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(extra <= 0, `${page.url()} is ${extra} px wider than the window`);
}

/**
 * Sends a request to the server, as a client of its API.
 * @param {string} target path below the server's root
 * @param {{method?: string, token?: string, headers?: Record<string, string>, body?: unknown}} [options]
 * @returns {Promise<any>} the answer's JSON
 */
export async function call(target, { method, token, headers = {}, body } = {}) {
  const response = await fetch(`${url}/${target}`, {
    method: method ?? (body === undefined ? 'GET' : 'POST'),
    headers: {
      ...headers,
      ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
      ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
    },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await response.text();
  assert.ok(response.ok, `${target}: ${response.status} ${text}`);
  return JSON.parse(text);
}
