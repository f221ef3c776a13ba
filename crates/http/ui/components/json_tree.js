// A JSON value as a tree that opens level by level.

import { html, useState } from '../lib/html.js';
import { bytes, count, number } from '../lib/format.js';

const FIRST_ENTRIES = 100;
const LONG_TEXT = 400;

/**
 * @param {{value: unknown, name?: string, open?: boolean, depth?: number}} props
 */
export function JsonTree({ value, name, open = true, depth = 0 }) {
  const label = name === undefined ? null : html`<span class="json-key">${name}</span>: `;
  if (value === null || typeof value !== 'object') return html`<div class="json-line">${label}<${Scalar} value=${value} /></div>`;
  const isList = Array.isArray(value);
  const size = isList ? value.length : Object.keys(value).length;
  if (size === 0) return html`<div class="json-line">${label}<span class="json-mark">${isList ? '[]' : '{}'}</span></div>`;
  return html`<${Branch} label=${label} value=${value} isList=${isList} size=${size} open=${open && depth < 3} depth=${depth} />`;
}

/**
 * @param {{label: any, value: object, isList: boolean, size: number, open: boolean, depth: number}} props
 */
function Branch({ label, value, isList, size, open, depth }) {
  const [isOpen, setOpen] = useState(open);
  const [shown, setShown] = useState(FIRST_ENTRIES);
  const toggle = (/** @type {Event} */ event) => setOpen(/** @type {HTMLDetailsElement} */ (event.currentTarget).open);
  const entries = isOpen ? Object.entries(value).slice(0, shown) : [];
  return html`<details class="json-branch" open=${isOpen} onToggle=${toggle}>
    <summary>${label}<span class="json-mark">${isList ? `[ ${count(size, 'value')} ]` : `{ ${count(size, 'key')} }`}</span></summary>
    <div class="json-inner">
      ${entries.map(([key, entry]) => html`<${JsonTree} key=${key} name=${key} value=${entry} depth=${depth + 1} />`)}
      ${isOpen && size > shown ? html`<button type="button" class="button quiet small" onClick=${() => setShown(shown * 4)}>Show more of ${number(size)} entries</button>` : null}
    </div>
  </details>`;
}

/**
 * @param {{value: unknown}} props
 */
function Scalar({ value }) {
  const [whole, setWhole] = useState(false);
  if (typeof value !== 'string') return html`<span class="json-${value === null ? 'null' : typeof value}">${String(value)}</span>`;
  const text = JSON.stringify(value);
  if (whole || text.length <= LONG_TEXT) return html`<span class="json-string">${text}</span>`;
  return html`<span class="json-string">${text.slice(0, LONG_TEXT)}…</span> <button type="button" class="button quiet small" onClick=${() => setWhole(true)}>Show ${bytes(value.length)}</button>`;
}
