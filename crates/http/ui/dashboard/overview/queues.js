// The queues: waiting and running jobs of each model, and each account's share of them.

import { html } from '../../lib/html.js';
import { duration, number } from '../../lib/format.js';
import { Link, pageUrl } from '../../lib/router.js';
import { DataTable } from '../data_table.js';
import { Panel, useLongList } from '../panel.js';

/**
 * @typedef {object} Share
 * @property {string} [account] absent for the anonymous account
 * @property {number} waiting
 * @property {number} running
 * @property {number} [oldest_wait_s]
 */

/** @typedef {Share & {model: string, accounts: Share[]}} Queue */

/** How many accounts of a queue are shown; the others are counted. */
const MAX_ACCOUNTS = 6;

/**
 * @param {{queues: Queue[]}} props
 */
export function Queues({ queues }) {
  const { shown, search, more } = useLongList(queues, (queue) => queue.model, 'Search queues');
  const columns = [
    { id: 'model', label: 'Model', class: 'cell-title', cell: (/** @type {Queue} */ queue) => html`<${Link} class="break" to="${pageUrl('jobs')}?${new URLSearchParams({ status: 'open', model: queue.model })}" title="Open jobs of ${queue.model}">${queue.model}</${Link}>` },
    { id: 'waiting', label: 'Waiting', number: true, cell: (/** @type {Queue} */ queue) => number(queue.waiting) },
    { id: 'running', label: 'Running', number: true, cell: (/** @type {Queue} */ queue) => number(queue.running) },
    { id: 'oldest', label: 'Oldest waiting', number: true, cell: (/** @type {Queue} */ queue) => duration(queue.oldest_wait_s) },
    { id: 'accounts', label: 'Share of accounts', class: 'cell-wide', cell: (/** @type {Queue} */ queue) => html`<${Shares} accounts=${queue.accounts} />` },
  ];
  return html`<${Panel} id="queues" title="Queues" end=${search}>
    ${queues.length === 0
      ? html`<p class="card muted">No model has a queue. Queues appear with the models.</p>`
      : html`<${DataTable} label="Queues" columns=${columns} rows=${shown} keyOf=${(/** @type {Queue} */ queue) => queue.model} />`}
    ${more}
  </${Panel}>`;
}

/**
 * @param {{accounts: Share[]}} props
 */
function Shares({ accounts }) {
  const list = shares(accounts);
  if (list.length === 0) return html`<span class="muted">no open jobs</span>`;
  const rest = list.length - MAX_ACCOUNTS;
  return html`<ul class="shares">${list.slice(0, MAX_ACCOUNTS).map((entry) => html`<li key=${entry.name} title="${entry.name}: ${entry.waiting} waiting, ${entry.running} running">
      <span class="share-name">${entry.name}</span>
      <span class="share-bar" aria-hidden="true"><span style=${{ width: `${entry.share * 100}%` }}></span></span>
      <span class="muted number">${entry.waiting} waiting, ${entry.running} running</span>
    </li>`)}</ul>${rest > 0 ? html`<span class="muted">and ${rest} more</span>` : null}`;
}

/**
 * The accounts with open jobs, largest first, with their share of all open jobs of the queue.
 * @param {Share[]} accounts
 * @returns {{name: string, waiting: number, running: number, share: number}[]}
 */
export function shares(accounts) {
  const open = (/** @type {Share} */ entry) => entry.waiting + entry.running;
  const all = accounts.reduce((sum, entry) => sum + open(entry), 0);
  return accounts
    .filter((entry) => open(entry) > 0)
    .toSorted((a, b) => open(b) - open(a) || (a.account ?? '').localeCompare(b.account ?? ''))
    .map((entry) => ({ name: entry.account ?? 'anonymous', waiting: entry.waiting, running: entry.running, share: open(entry) / all }));
}
