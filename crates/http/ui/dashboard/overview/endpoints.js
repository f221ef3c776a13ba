// Runpod endpoints of a platform, with their workers.

import { html } from '../../lib/html.js';
import { duration, number } from '../../lib/format.js';
import { Link, pageUrl } from '../../lib/router.js';
import { Badge } from '../../components/badge.js';
import { CodeBlock } from '../../components/code_block.js';
import { Empty } from '../../components/notes.js';
import { DataTable } from '../data_table.js';
import { addEndpoint, workerEnvironment } from '../../playground/commands.js';
import { Panel, useLongList } from '../panel.js';

/** @typedef {{id: string, state: string, jobs: number, last_seen_s: number}} Worker */
/** @typedef {{name: string, waiting: number, running: number, workers: Worker[]}} Endpoint */

/** The tones of states that only workers have. @type {Record<string, string>} */
const TONES = { initializing: 'busy', gone: 'idle' };

/**
 * @param {{endpoints: Endpoint[]}} props
 */
export function Endpoints({ endpoints }) {
  const { shown, search, more } = useLongList(endpoints, (endpoint) => endpoint.name, 'Search endpoints');
  return html`<${Panel} id="endpoints" title="Endpoints" end=${search}>
    ${endpoints.length === 0
      ? html`<div class="card"><${Empty} title="This platform has no endpoints"><p>Create one, then start workers for it:</p><${CodeBlock} label="the command" text=${addEndpoint('NAME')} /></${Empty}></div>`
      : html`<div class="stack">${shown.map((endpoint) => html`<${EndpointCard} key=${endpoint.name} endpoint=${endpoint} />`)}</div>`}
    ${more}
  </${Panel}>`;
}

/**
 * @param {{endpoint: Endpoint}} props
 */
function EndpointCard({ endpoint }) {
  const columns = [
    { id: 'id', label: 'Worker', class: 'cell-title', cell: (/** @type {Worker} */ worker) => html`<code class="break">${worker.id}</code>` },
    { id: 'state', label: 'State', cell: (/** @type {Worker} */ worker) => html`<${Badge} state=${worker.state} tone=${TONES[worker.state]} />` },
    { id: 'jobs', label: 'Jobs', number: true, cell: (/** @type {Worker} */ worker) => number(worker.jobs) },
    { id: 'seen', label: 'Last seen', number: true, cell: (/** @type {Worker} */ worker) => `${duration(worker.last_seen_s)} ago` },
  ];
  const noWorkers = endpoint.waiting > 0 ? 'Jobs wait, but no worker is connected.' : 'No worker is connected.';
  return html`<div class="card">
    <div class="card-head"><h3 class="break"><${Link} to=${pageUrl('endpoints', endpoint.name)}>${endpoint.name}</${Link}></h3>
      <span class="muted number">${number(endpoint.waiting)} waiting, ${number(endpoint.running)} running, ${endpoint.workers.length} ${endpoint.workers.length === 1 ? 'worker' : 'workers'}</span></div>
    ${endpoint.workers.length === 0
      ? html`<div class="stack"><p class=${endpoint.waiting > 0 ? 'bad-text' : 'muted'}>${noWorkers}</p><${CodeBlock} label="the command for ${endpoint.name}" text=${workerEnvironment(endpoint.name)} /></div>`
      : html`<${DataTable} label="Workers of ${endpoint.name}" columns=${columns} rows=${endpoint.workers} keyOf=${(/** @type {Worker} */ worker) => worker.id} />`}
  </div>`;
}
