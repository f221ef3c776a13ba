// The state of a model in one line: loading with the last log line, ready, or failed and why.

import { html, useEffect, useState } from '../lib/html.js';
import { duration } from '../lib/format.js';
import { Badge } from '../components/badge.js';

/** @typedef {import('../lib/types.d.ts').ModelState} ModelState */

/**
 * The words of a state: the badge's text and what follows it.
 * @param {ModelState} state
 * @param {number} now milliseconds
 * @returns {{badge: string, text: string}}
 */
export function stateLine({ health, detail, since }, now) {
  const seconds = since === null ? null : Math.max(0, now - Date.parse(since)) / 1000;
  switch (health.toUpperCase()) {
    case 'STARTING':
      return { badge: seconds === null ? 'loading' : `loading ${seconds < 60 ? `${Math.floor(seconds)} s` : duration(seconds)}`, text: detail ?? '' };
    case 'READY':
      return { badge: 'ready', text: detail ?? '' };
    case 'BUSY':
      return { badge: 'busy', text: detail ?? 'All slots are in use; new runs wait.' };
    case 'SETUP_FAILED':
      return { badge: 'setup failed', text: detail?.replace(/^setup failed: /, '') ?? 'The model could not be loaded; see the setup logs.' };
    case 'NO_WORKERS':
      return { badge: 'no workers', text: detail ?? 'No worker is connected.' };
    case 'NOT_LOADED':
      return { badge: 'not loaded', text: detail ?? 'The first run loads the model.' };
    case 'DEFUNCT':
      return { badge: 'failed', text: detail ?? 'The model ended too often and is not started again.' };
    default:
      return { badge: health.toLowerCase().replaceAll('_', ' '), text: detail ?? '' };
  }
}

/**
 * Since when a model loads, in milliseconds; null if it does not.
 * @param {ModelState | undefined} state
 * @returns {number | null}
 */
export function loadingSince(state) {
  if (state === undefined || state.health.toUpperCase() !== 'STARTING') return null;
  return state.since === null ? -Infinity : Date.parse(state.since);
}

/**
 * @param {{state: ModelState}} props
 */
export function StateLine({ state }) {
  const [now, setNow] = useState(Date.now);
  const loading = state.health.toUpperCase() === 'STARTING';
  useEffect(() => {
    setNow(Date.now());
    if (!loading) return undefined;
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [loading, state.since]);
  const { badge, text } = stateLine(state, now);
  return html`<div class="state-line"><${Badge} state=${state.health} text=${badge} tone=${loading ? 'busy' : undefined} /><span class="state-text ${loading ? 'mono' : ''}" title=${text}>${text}</span></div>`;
}
