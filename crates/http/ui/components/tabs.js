// Tabs with the keyboard behaviour of the ARIA pattern: arrows move, Home and End jump.

import { html, useRef } from '../lib/html.js';

/**
 * @typedef {object} Tab
 * @property {string} id
 * @property {string} label
 * @property {any} [count] shown behind the label
 */

/**
 * @param {{id: string, label: string, tabs: Tab[], current: string, onChange: (id: string) => void, children?: any}} props
 *   `children` is the content of the current tab; `id` is unique on the page
 */
export function Tabs({ id, label, tabs, current, onChange, children }) {
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  /** @param {KeyboardEvent} event */
  const move = (event) => {
    const at = tabs.findIndex((tab) => tab.id === current);
    /** @type {Record<string, number>} */
    const targets = { ArrowRight: (at + 1) % tabs.length, ArrowLeft: (at + tabs.length - 1) % tabs.length, Home: 0, End: tabs.length - 1 };
    const target = targets[event.key];
    if (target === undefined) return;
    event.preventDefault();
    onChange(tabs[target].id);
    /** @type {HTMLElement | undefined} */ (list.current?.children[target])?.focus();
  };
  return html`<div class="tabs">
    <div class="tab-list" role="tablist" aria-label=${label} ref=${list} onKeyDown=${move}>
      ${tabs.map((tab) => html`<button type="button" key=${tab.id} role="tab" id="${id}-tab-${tab.id}" aria-controls="${id}-panel" aria-selected=${tab.id === current ? 'true' : 'false'} tabindex=${tab.id === current ? 0 : -1} onClick=${() => onChange(tab.id)}>${tab.label}${tab.count === undefined ? null : html`<span class="tab-count">${tab.count}</span>`}</button>`)}
    </div>
    <div class="tab-panel" role="tabpanel" tabindex="0" id="${id}-panel" aria-labelledby="${id}-tab-${current}">${children}</div>
  </div>`;
}
