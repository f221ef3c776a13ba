// A number: a box, and a slider if it has two bounds.
//
// What the user types may not be a number yet (`1.`, `-`, nothing), so the box keeps its own text while it
// has the focus.

import { html, useState } from '../../../lib/html.js';
import { numberOf } from '../values.js';
import { attributes } from './attributes.js';

/** @typedef {import('./control.js').ControlProps} ControlProps */

/** @param {ControlProps} props */
export function NumberControl(props) {
  const { field, value, onChange } = props;
  const [draft, setDraft] = useState(/** @type {string | null} */ (null));
  const shown = value === undefined ? field.defaultValue : value;
  const text = draft !== null && isMeaning(draft, value, field.defaultValue) ? draft : textOf(shown);
  const { minimum, maximum } = field;
  const change = (/** @type {InputEvent} */ event) => {
    const next = /** @type {HTMLInputElement} */ (event.target).value;
    onChange(next === '' ? undefined : numberOf(next));
    return next;
  };
  const placeholder = value === null ? 'null' : textOf(field.defaultValue) || (field.required ? '' : 'not set');
  const box = html`<input type="text" inputmode=${field.kind === 'integer' ? 'numeric' : 'decimal'} autocomplete="off" ...${attributes(props)} class="number ${attributes(props).class}" value=${text} placeholder=${placeholder} onInput=${(/** @type {InputEvent} */ event) => setDraft(change(event))} onBlur=${() => setDraft(null)} />`;
  if (minimum === null || maximum === null || minimum >= maximum) return box;
  return html`<div class="slider">
    <input type="range" min=${minimum} max=${maximum} step=${stepOf(field)} value=${typeof shown === 'number' ? shown : minimum} aria-label="${field.title}, slider" onInput=${change} />
    ${box}
  </div>`;
}

/** @param {unknown} value */
function textOf(value) {
  return value === undefined || value === null ? '' : String(value);
}

/**
 * Whether the text of the box means the value: another one may have been set since.
 * @param {string} draft
 * @param {unknown} value
 * @param {unknown} defaultValue what an entry of a list has instead of no value
 */
export function isMeaning(draft, value, defaultValue) {
  if (draft === '') return value === undefined || value === defaultValue;
  return value !== undefined && value !== null && String(numberOf(draft)) === String(value);
}

/**
 * The step of a slider: about a hundred steps, each a round number.
 * @param {import('../fields.js').Field} field
 */
export function stepOf({ kind, minimum, maximum }) {
  if (kind === 'integer') return 1;
  const range = /** @type {number} */ (maximum) - /** @type {number} */ (minimum);
  return 10 ** Math.floor(Math.log10(range / 50));
}
