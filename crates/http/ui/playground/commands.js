// Commands to paste into a shell, for the server of this page.

import { rootUrl } from '../lib/root.js';
import { shell } from './code/quote.js';

/**
 * The option that names the server, with its URL as one word of a shell.
 * @param {URL} root
 * @returns {string}
 */
export function urlOption(root) {
  const url = root.href.replace(/\/$/, '');
  return `--url ${/^[\w:/.@%-]+$/.test(url) ? url : shell(url)}`;
}

/** @param {string} endpoint */
export function addEndpoint(endpoint) {
  return `tidegate endpoints add ${endpoint} ${urlOption(rootUrl)}`;
}

/**
 * Prints the environment of a worker.
 * @param {string} endpoint
 */
export function workerEnvironment(endpoint) {
  return `tidegate endpoints env ${endpoint} ${urlOption(rootUrl)}`;
}
