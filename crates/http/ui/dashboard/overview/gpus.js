// The GPUs of the machine: memory, load, and the processes of models that use them.

import { html } from '../../lib/html.js';
import { bytes } from '../../lib/format.js';
import { processName } from './slots.js';
import { DataTable } from '../data_table.js';
import { Panel, useLongList } from '../panel.js';

/**
 * A process of a model on a GPU.
 * @typedef {object} GpuChild
 * @property {string} model
 * @property {number} number
 * @property {string} [spare] `imported` or `loaded`: it waits to replace another one
 * @property {number | null} pid
 * @property {number | null} memory_bytes
 */

/**
 * A GPU, as `GET /admin/gpus` lists it; `null` is unknown.
 * @typedef {object} Gpu
 * @property {string} id
 * @property {number} index
 * @property {string} kind `card`, `divided` or `mig`
 * @property {string} uuid
 * @property {string | null} name
 * @property {number | null} memory_total_bytes
 * @property {number | null} memory_used_bytes
 * @property {number | null} utilization_percent
 * @property {number | null} temperature_celsius
 * @property {number} xid_errors
 * @property {number | null} last_xid
 * @property {number | null} cordoned_by_xid
 * @property {GpuChild[]} children
 * @property {number | null} other_processes
 * @property {number | null} other_memory_bytes
 */

const UNKNOWN = 'unknown';

/**
 * @param {{gpus: Gpu[]}} props
 */
export function Gpus({ gpus }) {
  const { shown, search, more } = useLongList(gpus, (gpu) => `${gpu.id} ${gpu.name ?? ''} ${gpu.uuid}`, 'Search GPUs');
  const columns = [
    { id: 'gpu', label: 'GPU', class: 'cell-title', cell: (/** @type {Gpu} */ gpu) => html`<span class="two-lines"><span>${gpuTitle(gpu)}</span><span class="muted" title=${gpu.uuid}>${gpu.name ?? UNKNOWN}</span></span>` },
    { id: 'memory', label: 'Memory', number: true, cell: memoryText },
    { id: 'busy', label: 'Busy', number: true, cell: (/** @type {Gpu} */ gpu) => withUnit(gpu.utilization_percent, ' %') },
    { id: 'temperature', label: 'Temperature', number: true, cell: (/** @type {Gpu} */ gpu) => withUnit(gpu.temperature_celsius, ' °C') },
    { id: 'processes', label: 'Processes', class: 'cell-wide', cell: (/** @type {Gpu} */ gpu) => html`<${Users} gpu=${gpu} />` },
    ...(gpus.some(hasErrors) ? [{ id: 'errors', label: 'Errors', cell: (/** @type {Gpu} */ gpu) => html`<span class=${hasErrors(gpu) ? 'bad-text' : 'muted'}>${errorText(gpu)}</span>` }] : []),
  ];
  return html`<${Panel} id="gpus" title="GPUs" end=${search}>
    <${DataTable} label="GPUs" columns=${columns} rows=${shown} keyOf=${(/** @type {Gpu} */ gpu) => gpu.uuid} />
    ${more}
  </${Panel}>`;
}

/**
 * @param {{gpu: Gpu}} props
 */
function Users({ gpu }) {
  const lines = userLines(gpu);
  if (lines.length === 0) return html`<span class="muted">none</span>`;
  return html`<span class="two-lines">${lines.map((line) => html`<span key=${line}>${line}</span>`)}</span>`;
}

/**
 * What uses a GPU, one line each.
 * @param {Gpu} gpu
 * @returns {string[]}
 */
export function userLines(gpu) {
  const children = gpu.children.map((child) => `${child.model} ${processName(child)}: ${sizeText(child.memory_bytes)}`);
  const count = gpu.other_processes ?? 0;
  const others = count > 0 ? [`${count} ${count === 1 ? 'other process' : 'other processes'}: ${sizeText(gpu.other_memory_bytes)}`] : [];
  return [...children, ...others];
}

/**
 * The parts of a card that is cordoned have no errors of their own.
 * @param {Gpu} gpu
 * @returns {boolean}
 */
function hasErrors(gpu) {
  return gpu.xid_errors > 0 || gpu.cordoned_by_xid != null;
}

/**
 * @param {Gpu} gpu
 * @returns {string}
 */
export function gpuTitle(gpu) {
  if (gpu.kind === 'mig') return `MIG device of GPU ${gpu.index}`;
  return gpu.kind === 'divided' ? `GPU ${gpu.index}, divided by MIG` : `GPU ${gpu.index}`;
}

/**
 * @param {Gpu} gpu
 * @returns {string}
 */
export function memoryText(gpu) {
  if (gpu.memory_total_bytes == null || gpu.memory_used_bytes == null) return UNKNOWN;
  return `${bytes(gpu.memory_used_bytes)} of ${bytes(gpu.memory_total_bytes)}`;
}

/**
 * @param {Gpu} gpu
 * @returns {string}
 */
export function errorText(gpu) {
  const counted = gpu.xid_errors === 0 ? 'none' : `${gpu.xid_errors}, the last is Xid ${gpu.last_xid}`;
  return gpu.cordoned_by_xid == null ? counted : `cordoned by Xid ${gpu.cordoned_by_xid}; errors: ${counted}`;
}

/**
 * @param {number | null} size
 * @returns {string}
 */
function sizeText(size) {
  return size == null ? UNKNOWN : bytes(size);
}

/**
 * @param {number | null} value
 * @param {string} unit
 * @returns {string}
 */
function withUnit(value, unit) {
  return value == null ? UNKNOWN : `${value}${unit}`;
}
