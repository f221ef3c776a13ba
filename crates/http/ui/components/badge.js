// States as coloured labels. The text carries the meaning; the colour repeats it.

import { html } from '../lib/html.js';

/** @type {Record<string, string>} */
const TONES = {
  queued: 'idle',
  starting: 'busy',
  processing: 'busy',
  succeeded: 'good',
  failed: 'bad',
  aborted: 'bad',
  canceled: 'idle',
  ready: 'good',
  idle: 'good',
  standby: 'good',
  healthy: 'good',
  busy: 'busy',
  running: 'busy',
  loading: 'busy',
  restarting: 'warn',
  unhealthy: 'warn',
  no_workers: 'warn',
  setup_failed: 'bad',
  defunct: 'bad',
  unknown: 'idle',
  not_loaded: 'idle',
  delivered: 'good',
  pending: 'busy',
  retrying: 'warn',
  lost: 'warn',
  released: 'idle',
};

/**
 * The tone of a state's name: `good`, `busy`, `warn`, `bad` or `idle`.
 * @param {string} state
 */
export function toneOf(state) {
  return TONES[state.toLowerCase()] ?? 'idle';
}

/**
 * A state's name as words: `SETUP_FAILED` is `setup failed`.
 * @param {string} state
 */
export function stateWords(state) {
  return state.toLowerCase().replaceAll('_', ' ');
}

/**
 * @param {{state: string, text?: string, tone?: string}} props
 */
export function Badge({ state, text, tone }) {
  return html`<span class="badge badge-${tone ?? toneOf(state)}"><span class="dot" aria-hidden="true"></span>${text ?? stateWords(state)}</span>`;
}
