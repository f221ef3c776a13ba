// The processes of a cluster: directors, which run jobs, and replicas of the API.

import { html } from '../../lib/html.js';
import { duration, number } from '../../lib/format.js';
import { CodeBlock } from '../../components/code_block.js';
import { Empty } from '../../components/notes.js';
import { DataTable } from '../data_table.js';
import { Panel, useLongList } from '../panel.js';

/** @typedef {{id: string, models: string[], slots: number, running: number, last_seen_s: number, draining?: boolean}} Director */
/** @typedef {{id: string, last_seen_s: number}} Replica */

/** A process that was silent for this long is probably lost. Heartbeats come every few seconds. */
const LATE_S = 15;

/**
 * @param {{directors: Director[]}} props
 */
export function Directors({ directors }) {
  const { shown, search, more } = useLongList(directors, (director) => `${director.id} ${director.models.join(' ')}`, 'Search directors');
  const columns = [
    { id: 'id', label: 'Director', class: 'cell-title', cell: (/** @type {Director} */ director) => html`<span class="row"><code class="break">${director.id}</code>${director.draining ? html`<span class="tag">draining</span>` : null}</span>` },
    { id: 'models', label: 'Models', class: 'cell-wide', cell: (/** @type {Director} */ director) => html`<span class="break">${director.models.join(', ') || '–'}</span>` },
    { id: 'slots', label: 'Slots in use', number: true, cell: (/** @type {Director} */ director) => `${number(director.running)} of ${number(director.slots)}` },
    { id: 'seen', label: 'Last seen', number: true, cell: (/** @type {Director} */ director) => html`<${LastSeen} seconds=${director.last_seen_s} />` },
  ];
  return html`<${Panel} id="directors" title="Directors" end=${search}>
    ${directors.length === 0
      ? html`<div class="card"><${Empty} title="No director is connected"><p>Jobs wait until a director takes them. Start one:</p><${CodeBlock} label="the command" text="tidegate director MODEL --redis URL --api URL --token-file FILE" /></${Empty}></div>`
      : html`<${DataTable} label="Directors" columns=${columns} rows=${shown} keyOf=${(/** @type {Director} */ director) => director.id} />`}
    ${more}
  </${Panel}>`;
}

/**
 * @param {{replicas: Replica[]}} props
 */
export function Replicas({ replicas }) {
  const columns = [
    { id: 'id', label: 'API process', class: 'cell-title', cell: (/** @type {Replica} */ replica) => html`<code class="break">${replica.id}</code>` },
    { id: 'seen', label: 'Last seen', number: true, cell: (/** @type {Replica} */ replica) => html`<${LastSeen} seconds=${replica.last_seen_s} />` },
  ];
  return html`<${Panel} id="replicas" title="API processes">
    ${replicas.length === 0
      ? html`<p class="card muted">This is the only API process.</p>`
      : html`<${DataTable} label="API processes" columns=${columns} rows=${replicas} keyOf=${(/** @type {Replica} */ replica) => replica.id} />`}
  </${Panel}>`;
}

/**
 * @param {{seconds: number}} props
 */
function LastSeen({ seconds }) {
  return html`<span class=${seconds >= LATE_S ? 'bad-text' : null}>${duration(seconds)} ago</span>`;
}
