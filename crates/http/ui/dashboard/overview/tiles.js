// The numbers at the top of the overview.

import { html } from '../../lib/html.js';
import { duration, number, percent } from '../../lib/format.js';
import { useSession } from '../../lib/session.js';
import { latency, rate } from '../format.js';

/**
 * The section `overview` of the server, over the last minute.
 * @typedef {object} Totals
 * @property {number} requests_per_s
 * @property {number} in_flight
 * @property {number} waiting
 * @property {number} running
 * @property {number | null} oldest_wait_s
 * @property {number} error_rate
 * @property {number | null} p50_s
 * @property {number | null} p95_s
 * @property {number | null} p99_s
 */

/** An error rate from which the tile warns, and one from which it is an error. */
const WARN_RATE = 0.01;
const BAD_RATE = 0.05;

/** How long a job may wait before its tile warns, in seconds. */
const WARN_WAIT_S = 60;

/**
 * What the percentiles are of: a router does not know how long a model works on a request.
 * @param {string} command the command that runs the server
 */
export function measuredTime(command) {
  return command === 'router' ? { name: 'Request time', hint: 'arrival to last byte' } : { name: 'Run time', hint: 'in the model' };
}

/**
 * @param {{totals: Totals}} props
 */
export function Tiles({ totals }) {
  const { name, hint } = measuredTime(useSession().server.command);
  return html`<dl class="tiles" aria-label="The last minute">
    <${Tile} label="Requests/s" value=${rate(totals.requests_per_s)} />
    <${Tile} label="In flight" value=${number(totals.in_flight)} hint="waiting or running" />
    <${Tile} label="Waiting" value=${number(totals.waiting)} hint="${number(totals.running)} running" />
    <${Tile} label="Oldest waiting" value=${duration(totals.oldest_wait_s)} tone=${(totals.oldest_wait_s ?? 0) >= WARN_WAIT_S ? 'warn' : ''} hint=${totals.oldest_wait_s === null ? 'no job waits' : ''} />
    <${Tile} label="Error rate" value=${percent(totals.error_rate)} tone=${errorTone(totals.error_rate)} />
    <${Tile} label="${name} p50" value=${latency(totals.p50_s)} hint=${hint} />
    <${Tile} label="${name} p95" value=${latency(totals.p95_s)} hint=${hint} />
    <${Tile} label="${name} p99" value=${latency(totals.p99_s)} hint=${hint} />
  </dl>`;
}

/**
 * The tone of an error rate: none, `warn` or `bad`.
 * @param {number} errorRate
 * @returns {string}
 */
export function errorTone(errorRate) {
  if (errorRate >= BAD_RATE) return 'bad';
  return errorRate >= WARN_RATE ? 'warn' : '';
}

/**
 * @param {{label: string, value: string, hint?: string, tone?: string}} props
 */
function Tile({ label, value, hint, tone = '' }) {
  return html`<div class="tile ${tone === '' ? '' : `tile-${tone}`}"><dt>${label}</dt><dd class="tile-value number">${value}</dd>${hint ? html`<dd class="tile-hint">${hint}</dd>` : null}</div>`;
}
