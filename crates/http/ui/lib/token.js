// The API token in the browser: kept for this tab, or for the browser if the user chose so.

import { storagePrefix } from './root.js';

const KEY = `${storagePrefix}token`;

/**
 * The token of this tab.
 * @returns {string | null}
 */
export function token() {
  return sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY);
}

/**
 * Keeps the token for this tab, or for the browser.
 * @param {string} value
 * @param {{remember: boolean}} options
 */
export function keepToken(value, { remember }) {
  forgetToken();
  (remember ? localStorage : sessionStorage).setItem(KEY, value);
}

/** Removes the token from this tab and from the browser. */
export function forgetToken() {
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
}
