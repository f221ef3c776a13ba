// Short messages in the corner of the page, for the result of an action that has no place of its own.

import { html, useEffect, useState } from '../lib/html.js';

/** @type {{id: number, text: string, tone: string}[]} */
let toasts = [];
/** @type {(() => void) | null} */
let changed = null;
let lastId = 0;

const SHOWN_MS = 5000;

/**
 * Shows a message for some seconds.
 * @param {string} text
 * @param {'good' | 'bad' | 'idle'} [tone]
 */
export function showToast(text, tone = 'idle') {
  lastId += 1;
  const toast = { id: lastId, text, tone };
  toasts = [...toasts, toast].slice(-4);
  changed?.();
  setTimeout(() => {
    toasts = toasts.filter((other) => other !== toast);
    changed?.();
  }, SHOWN_MS);
}

/** The place where the messages appear; rendered once, by the shell. */
export function Toaster() {
  const [list, setList] = useState(toasts);
  useEffect(() => {
    changed = () => setList(toasts);
    return () => { changed = null; };
  }, []);
  return html`<div class="toaster" role="status" aria-live="polite">${list.map((toast) => html`<div key=${toast.id} class="toast toast-${toast.tone}">${toast.text}</div>`)}</div>`;
}
