// The endpoints of a router, by model.

import { html } from '../../lib/html.js';
import { latency } from '../format.js';
import { number } from '../../lib/format.js';
import { Badge } from '../../components/badge.js';
import { Empty } from '../../components/notes.js';
import { DataTable } from '../data_table.js';
import { Panel, useLongList } from '../panel.js';

/** @typedef {{url: string, kind: string, health: string, permits: number, used: number, latency_ms: number | null, draining: boolean}} Upstream */
/** @typedef {{name: string, waiting: number, endpoints: Upstream[]}} RoutedModel */

/** The tones of states that only a router's endpoints have. @type {Record<string, string>} */
const TONES = { 'backing-off': 'warn', open: 'bad', 'half-open': 'warn', draining: 'idle' };

/**
 * @param {{models: RoutedModel[]}} props
 */
export function Router({ models }) {
  const { shown, search, more } = useLongList(models, (model) => model.name, 'Search models');
  return html`<${Panel} id="router" title="Routed models" end=${search}>
    ${models.length === 0
      ? html`<div class="card"><${Empty} title="The router has no models">Add models and their endpoints to its configuration file.</${Empty}></div>`
      : html`<div class="stack">${shown.map((model) => html`<${RoutedModelCard} key=${model.name} model=${model} />`)}</div>`}
    ${more}
  </${Panel}>`;
}

/**
 * @param {{model: RoutedModel}} props
 */
function RoutedModelCard({ model }) {
  const columns = [
    { id: 'url', label: 'Endpoint', class: 'cell-title', cell: (/** @type {Upstream} */ endpoint) => html`<code class="break">${endpoint.url}</code>` },
    { id: 'kind', label: 'Kind', cell: (/** @type {Upstream} */ endpoint) => endpoint.kind },
    { id: 'health', label: 'Health', cell: (/** @type {Upstream} */ endpoint) => html`<span class="row"><${Badge} state=${endpoint.health} tone=${TONES[endpoint.health]} />${endpoint.draining && endpoint.health !== 'draining' ? html`<span class="tag">draining</span>` : null}</span>` },
    { id: 'used', label: 'Permits in use', number: true, cell: (/** @type {Upstream} */ endpoint) => `${number(endpoint.used)} of ${number(endpoint.permits)}` },
    { id: 'latency', label: 'Latency', number: true, cell: (/** @type {Upstream} */ endpoint) => latency(endpoint.latency_ms == null ? null : endpoint.latency_ms / 1000) },
  ];
  return html`<div class="card">
    <div class="card-head"><h3 class="break">${model.name}</h3><span class="muted number">${number(model.waiting)} waiting</span></div>
    ${model.endpoints.length === 0
      ? html`<p class="bad-text">No endpoint serves this model: its requests fail.</p>`
      : html`<${DataTable} label="Endpoints of ${model.name}" columns=${columns} rows=${model.endpoints} keyOf=${(/** @type {Upstream} */ endpoint) => endpoint.url} />`}
  </div>`;
}
