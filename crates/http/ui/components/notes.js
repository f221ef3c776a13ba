// What a panel shows instead of its content: nothing yet, an error, or a placeholder while it loads.

import { html } from '../lib/html.js';
import { Icon } from './icon.js';

/**
 * @param {{icon?: string, title: string, children?: any}} props
 */
export function Empty({ icon = 'box', title, children }) {
  return html`<div class="empty"><${Icon} name=${icon} /><p class="empty-title">${title}</p>${children ? html`<div class="empty-text">${children}</div>` : null}</div>`;
}

/**
 * @param {{error: {message: string, status?: number} | string, title?: string, onRetry?: () => void}} props
 */
export function ErrorNote({ error, title, onRetry }) {
  const message = typeof error === 'string' ? error : error.message;
  return html`<div class="note note-bad" role="alert">
    <${Icon} name="warning" />
    <div class="note-text">${title ? html`<strong>${title}</strong>` : null}<p>${message}</p></div>
    ${onRetry ? html`<button type="button" class="button small" onClick=${onRetry}>Try again</button>` : null}
  </div>`;
}

/**
 * @param {{lines?: number}} props
 */
export function Skeleton({ lines = 3 }) {
  return html`<div class="skeleton" role="status" aria-label="Loading">${Array.from({ length: lines }, () => html`<span></span>`)}</div>`;
}
