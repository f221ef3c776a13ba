// Copies a text to the clipboard.

import { html, useEffect, useState } from '../lib/html.js';
import { Icon } from './icon.js';

/**
 * @param {string} text
 */
export async function copyText(text) {
  if (navigator.clipboard !== undefined) {
    await navigator.clipboard.writeText(text);
    return;
  }
  // The Clipboard API exists only in secure contexts (HTTPS, localhost).
  const area = document.createElement('textarea');
  area.value = text;
  area.className = 'visually-hidden';
  document.body.append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
}

/**
 * @param {{text: string | (() => string), label?: string, showLabel?: boolean}} props
 */
export function CopyButton({ text, label = 'Copy', showLabel = false }) {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return undefined;
    const timer = setTimeout(() => setCopied(false), 1500);
    return () => clearTimeout(timer);
  }, [copied]);
  const copy = () => copyText(typeof text === 'string' ? text : text()).then(() => setCopied(true), () => {});
  return html`<button type="button" class="button quiet small" onClick=${copy} aria-label=${showLabel ? null : label} title=${label}>
    <${Icon} name=${copied ? 'check' : 'copy'} />${showLabel ? (copied ? 'Copied' : label) : null}
  </button>`;
}
