// A section of a page with a heading, and a search over long lists.

import { html, useState } from '../lib/html.js';
import { Icon } from '../components/icon.js';

/**
 * @param {{id: string, title: string, note?: any, end?: any, children?: any}} props `end` is at the right of the heading
 */
export function Panel({ id, title, note, end, children }) {
  return html`<section class="panel" aria-labelledby="${id}-title">
    <div class="panel-head"><h2 id="${id}-title">${title}</h2>${note ? html`<span class="muted">${note}</span>` : null}${end ? html`<div class="end">${end}</div>` : null}</div>
    ${children}
  </section>`;
}

/**
 * A box to search with.
 * @param {{value: string, onInput: (value: string) => void, label: string}} props
 */
export function SearchBox({ value, onInput, label }) {
  return html`<div class="search-box"><${Icon} name="search" /><input type="search" aria-label=${label} placeholder=${label} value=${value} autocomplete="off" spellcheck=${false} onInput=${(/** @type {any} */ event) => onInput(event.target.value)} /></div>`;
}

/** How many rows of a long list are shown at first. */
const FIRST_ROWS = 20;

/**
 * The rows of a list that match a search, and the elements to search and to show all of them. Short
 * lists have neither.
 * @template T
 * @param {T[]} rows
 * @param {(row: T) => string} textOf what is searched
 * @param {string} label names the search box
 * @returns {{shown: T[], search: any, more: any}}
 */
export function useLongList(rows, textOf, label) {
  const [text, setText] = useState('');
  const [all, setAll] = useState(false);
  const words = text.toLowerCase().split(/\s+/);
  const found = rows.filter((row) => words.every((word) => textOf(row).toLowerCase().includes(word)));
  const shown = all ? found : found.slice(0, FIRST_ROWS);
  const search = rows.length > 8 ? html`<${SearchBox} value=${text} onInput=${setText} label=${label} />` : null;
  const rest = found.length - shown.length;
  const more = html`<${ListEnd} rest=${rest} total=${found.length} search=${text} onAll=${() => setAll(true)} />`;
  return { shown, search, more };
}

/**
 * @param {{rest: number, total: number, search: string, onAll: () => void}} props
 */
function ListEnd({ rest, total, search, onAll }) {
  if (total === 0 && search !== '') return html`<p class="muted list-end">Nothing matches “${search}”.</p>`;
  if (rest === 0) return null;
  return html`<p class="list-end"><button type="button" class="button small" onClick=${onAll}>Show all ${total}</button></p>`;
}
