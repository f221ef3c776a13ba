// The models of the server: health, slots, processes, versions and the logs of their setup.

import { html, useMemo } from '../../lib/html.js';
import { Link, pageUrl } from '../../lib/router.js';
import { ago, bytes, duration, number } from '../../lib/format.js';
import { terminalText } from '../../lib/terminal_text.js';
import { useRequest } from '../../lib/use_request.js';
import { Badge, stateWords, toneOf } from '../../components/badge.js';
import { CodeBlock } from '../../components/code_block.js';
import { Empty, ErrorNote, Skeleton } from '../../components/notes.js';
import { DataTable } from '../data_table.js';
import { DisclosureButton, useOpenRows } from '../disclosure.js';
import { shortVersion } from '../format.js';
import { Panel, useLongList } from '../panel.js';
import { Slots, processName, slotCounts } from './slots.js';

/** @typedef {import('../../lib/types.d.ts').ModelSection} Model */
/** @typedef {import('./slots.js').Child} Child */

/**
 * @param {{models: Model[], processes: Child[] | undefined}} props absent if they run elsewhere
 */
export function Models({ models, processes }) {
  const [isOpen, toggle] = useOpenRows();
  const byModel = useMemo(() => groupBy(processes ?? [], (child) => child.model), [processes]);
  const { shown, search, more } = useLongList(useMemo(() => failedFirst(models), [models]), (model) => `${model.name} ${stateWords(model.state.health)}`, 'Search models');
  const childrenOf = (/** @type {Model} */ model) => byModel.get(model.name) ?? [];
  const columns = [
    { id: 'model', label: 'Model', class: 'cell-title', cell: (/** @type {Model} */ model) => html`<span class="with-disclosure"><${DisclosureButton} open=${isOpen(model.name)} onToggle=${() => toggle(model.name)} label="Processes and setup logs of ${model.name}" /><${ModelName} model=${model} /></span>` },
    { id: 'health', label: 'Health', class: 'cell-wide', cell: (/** @type {Model} */ model) => html`<${Health} state=${model.state} />` },
    { id: 'slots', label: 'Slots', cell: (/** @type {Model} */ model) => html`<${Slots} counts=${slotCounts(model, childrenOf(model))} />` },
    { id: 'waiting', label: 'Waiting', number: true, cell: (/** @type {Model} */ model) => number(model.waiting) },
    { id: 'running', label: 'Running', number: true, cell: (/** @type {Model} */ model) => number(model.running) },
  ];
  const note = models.length > 0 ? healthSummary(models) : null;
  return html`<${Panel} id="models" title="Models" note=${note} end=${search}>
    ${models.length === 0
      ? html`<div class="card"><${Empty} title="This server has no models"><p>Start it with a folder that has a model:</p><${CodeBlock} label="the command" text="tidegate serve examples/hello" /></${Empty}></div>`
      : html`<${DataTable} label="Models" columns=${columns} rows=${shown} keyOf=${(/** @type {Model} */ model) => model.name}
          detailOf=${(/** @type {Model} */ model) => isOpen(model.name) && html`<${ModelDetail} model=${model} processes=${processes && childrenOf(model)} />`} />`}
    ${more}
  </${Panel}>`;
}

/**
 * @param {{model: Model}} props
 */
function ModelName({ model }) {
  return html`<span class="two-lines"><${Link} to=${pageUrl('models', model.name)} class="break">${model.name}</${Link}>${model.version ? html`<code class="muted" title=${model.version}>${shortVersion(model.version)}</code>` : null}</span>`;
}

/**
 * @param {{state: import('../../lib/types.d.ts').ModelState}} props
 */
function Health({ state }) {
  return html`<span class="two-lines"><span class="row"><${Badge} state=${state.health} />${state.since ? html`<span class="muted" title=${state.since}>${ago(state.since)}</span>` : null}</span>
    ${state.detail ? html`<span class="detail-line ${toneOf(state.health) === 'bad' ? 'bad-text' : 'muted'}" title=${state.detail}>${state.detail}</span>` : null}</span>`;
}

/**
 * What is below the row of a model.
 * @param {{model: Model, processes: Child[] | undefined}} props
 */
function ModelDetail({ model, processes }) {
  const path = model.name.split('/').map(encodeURIComponent).join('/');
  const { data, error, loading, reload } = useRequest(`ui/api/models/${path}`);
  return html`<div class="detail">
    ${processes === undefined ? null : html`<${Processes} model=${model.name} processes=${processes} />`}
    ${loading ? html`<${Skeleton} lines=${2} />` : null}
    ${error ? html`<${ErrorNote} title="The setup logs could not be read" error=${error} onRetry=${reload} />` : null}
    ${data?.versions?.length > 1 ? html`<${Versions} versions=${data.versions} />` : null}
    ${data ? html`<${Setup} setup=${data.setup} name=${model.name} onReload=${reload} />` : null}
  </div>`;
}

/**
 * @param {{versions: {version: string, health: string}[]}} props
 */
function Versions({ versions }) {
  return html`<div><h3>Versions</h3><ul class="version-list">${versions.map(({ version, health }) => html`<li key=${version} class="row"><code class="break" title=${version}>${shortVersion(version)}</code><${Badge} state=${health} /></li>`)}</ul></div>`;
}

/**
 * @param {{setup: import('../../lib/types.d.ts').ModelDetail['setup'], name: string, onReload: () => void}} props
 */
function Setup({ setup, name, onReload }) {
  if (setup === null) return html`<p class="muted">The model has not been loaded yet. It loads with its first job.</p>`;
  const took = setup.took_s == null ? '' : ` in ${duration(setup.took_s)}`;
  return html`<div><div class="row"><h3>Setup</h3><span class="muted">${stateWords(setup.status)}${took}</span><button type="button" class="button quiet small" onClick=${onReload}>Reload</button></div>
    ${setup.logs ? html`<${CodeBlock} label="setup logs of ${name}" text=${terminalText(setup.logs)} />` : html`<p class="muted">The setup printed nothing.</p>`}</div>`;
}

/**
 * @param {{model: string, processes: Child[]}} props
 */
function Processes({ model, processes }) {
  if (processes.length === 0) return html`<p class="muted">No process runs.</p>`;
  const columns = [
    { id: 'number', label: 'Process', class: 'cell-title', cell: processName },
    { id: 'state', label: 'State', cell: (/** @type {Child} */ child) => html`<span class="row"><${Badge} state=${childState(child)} /><span class="muted">${ago(child.since)}</span></span>` },
    { id: 'pid', label: 'PID', number: true, cell: (/** @type {Child} */ child) => child.pid ?? '–' },
    { id: 'jobs', label: 'Slots in use', number: true, cell: (/** @type {Child} */ child) => (child.spare === undefined ? `${child.jobs} of ${child.slots}` : '–') },
    { id: 'memory', label: 'Memory', number: true, cell: (/** @type {Child} */ child) => bytes(child.memory_bytes) },
    ...(processes.some((child) => child.gpu) ? [{ id: 'gpu', label: 'GPU', cell: (/** @type {Child} */ child) => child.gpu ?? '–' }] : []),
    { id: 'restarts', label: 'Restarts', number: true, cell: (/** @type {Child} */ child) => number(child.restarts) },
    { id: 'end', label: 'Last end', class: 'cell-wide', cell: (/** @type {Child} */ child) => html`<span class="break lines">${child.last_end ?? '–'}</span>` },
  ];
  return html`<div><h3>Processes</h3><${DataTable} label="Processes of ${model}" columns=${columns} rows=${processes} keyOf=${processName} /></div>`;
}

/**
 * The state of a process. One that replaces another restarts; one with jobs is busy; a spare waits.
 * @param {Child} child
 * @returns {string}
 */
export function childState(child) {
  if (child.state === 'starting' && child.restarts > 0) return 'restarting';
  if (child.state !== 'ready') return child.state;
  if (child.spare !== undefined) return 'standby';
  return child.jobs > 0 ? 'busy' : 'idle';
}

/**
 * Models that do not work first, then by name. Ready and busy models are not separated: they would change
 * places with each job.
 * @param {Model[]} models
 * @returns {Model[]}
 */
export function failedFirst(models) {
  const rank = (/** @type {Model} */ model) => (toneOf(model.state.health) === 'bad' ? 0 : 1);
  return models.toSorted((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
}

/**
 * How many models have which health, like `3 ready, 1 setup failed`.
 * @param {Model[]} models
 * @returns {string}
 */
export function healthSummary(models) {
  const counts = new Map();
  for (const { state } of models) counts.set(state.health, (counts.get(state.health) ?? 0) + 1);
  return [...counts].map(([health, count]) => `${count} ${stateWords(health)}`).join(', ');
}

/**
 * @template T
 * @param {T[]} list
 * @param {(entry: T) => string} keyOf
 * @returns {Map<string, T[]>}
 */
function groupBy(list, keyOf) {
  /** @type {Map<string, T[]>} */
  const groups = new Map();
  for (const entry of list) {
    const group = groups.get(keyOf(entry));
    if (group) group.push(entry);
    else groups.set(keyOf(entry), [entry]);
  }
  return groups;
}
