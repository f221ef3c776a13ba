// Light and dark: as the system says, or as the user chose.

import { storagePrefix } from './root.js';

/** @typedef {'auto' | 'light' | 'dark'} Theme */

const KEY = `${storagePrefix}theme`;
/** @type {Theme[]} */
const ORDER = ['auto', 'light', 'dark'];

/** @returns {Theme} */
export function theme() {
  const value = /** @type {Theme} */ (localStorage.getItem(KEY));
  return ORDER.includes(value) ? value : 'auto';
}

/**
 * @param {Theme} value
 */
export function setTheme(value) {
  localStorage.setItem(KEY, value);
  applyTheme();
}

/** Applies the chosen theme to the document. */
export function applyTheme() {
  document.documentElement.dataset.theme = theme();
}

/**
 * The theme after this one.
 * @param {Theme} value
 */
export function nextTheme(value) {
  return ORDER[(ORDER.indexOf(value) + 1) % ORDER.length];
}
