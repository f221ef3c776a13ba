// The slots of a model: idle, busy, and those of processes that restart.

import { html } from '../../lib/html.js';

/**
 * A process of a model, as `GET /admin/children` lists it.
 * @typedef {object} Child
 * @property {string} model
 * @property {number} number
 * @property {number} [pid]
 * @property {string} state `starting`, `ready`, `setup_failed` or `defunct`
 * @property {number} slots
 * @property {number} jobs
 * @property {number} [memory_bytes]
 * @property {string} [gpu]
 * @property {string} [spare] `imported` or `loaded`: it waits to replace another one
 * @property {number} restarts
 * @property {string} since
 * @property {string} [last_end]
 */

/** @typedef {{idle: number, busy: number, restarting: number}} SlotCounts */

/** Models with more slots have numbers only. */
const MAX_SQUARES = 16;

/**
 * What a process is called: its number, or that it is a spare, which has none.
 * @param {{number: number, spare?: string}} process
 * @returns {string}
 */
export function processName({ number, spare }) {
  return spare === undefined ? `#${number}` : `spare (${spare})`;
}

/**
 * The slots of a model by their state. A process that restarts has no slots until it is ready; it counts
 * with as many as its siblings have, at least one.
 * @param {{slots: number, slots_free: number}} model
 * @param {Child[]} children
 * @returns {SlotCounts}
 */
export function slotCounts({ slots, slots_free: idle }, children) {
  const usual = Math.max(1, ...children.map((child) => child.slots));
  const restarting = children.filter((child) => child.spare === undefined && child.state === 'starting' && child.restarts > 0).length * usual;
  return { idle, busy: Math.max(0, slots - idle), restarting };
}

/**
 * @param {{counts: SlotCounts}} props
 */
export function Slots({ counts }) {
  const { idle, busy, restarting } = counts;
  const total = idle + busy + restarting;
  if (total === 0) return html`<span class="muted">none</span>`;
  const states = [...Array(busy).fill('busy'), ...Array(idle).fill('idle'), ...Array(restarting).fill('restarting')];
  const squares = total > MAX_SQUARES ? null : html`<span class="slots" aria-hidden="true">${states.map((state) => html`<span class="slot slot-${state}"></span>`)}</span>`;
  return html`<span class="slots-cell">${squares}<span class="number">${slotText(counts)}</span></span>`;
}

/**
 * @param {SlotCounts} counts
 * @returns {string}
 */
export function slotText({ idle, busy, restarting }) {
  const text = `${busy} of ${idle + busy} busy`;
  return restarting === 0 ? text : `${text}, ${restarting} restarting`;
}
