// A button that shows and hides more about a row.

import { html, useState } from '../lib/html.js';
import { Icon } from '../components/icon.js';

/**
 * @param {{open: boolean, onToggle: () => void, label: string}} props the label names what is shown
 */
export function DisclosureButton({ open, onToggle, label }) {
  return html`<button type="button" class="button quiet small icon-only disclosure" aria-expanded=${open ? 'true' : 'false'} aria-label=${label} title=${label} onClick=${onToggle}><${Icon} name="chevron" /></button>`;
}

/**
 * Which rows are open, by their key.
 * @returns {[(key: string) => boolean, (key: string) => void]} a test, and a function that toggles
 */
export function useOpenRows() {
  const [open, setOpen] = useState(/** @type {ReadonlySet<string>} */ (new Set()));
  /** @param {string} key */
  const toggle = (key) => setOpen((previous) => {
    const next = new Set(previous);
    if (!next.delete(key)) next.add(key);
    return next;
  });
  return [(key) => open.has(key), toggle];
}
