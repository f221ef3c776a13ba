// A number: a box, and a slider if it has two bounds.

import { html, useState } from '../../../lib/html.js';
import { numberOf } from '../values.js';
import { attributes } from './attributes.js';

/** @typedef {import('./control.js').ControlProps} ControlProps */

/** @param {ControlProps} props */
export function NumberControl(props) {
  const { field, value, onChange } = props;
  // What the user types may not be a number yet (`1.`, `-`), so the box keeps its own text.
  const [draft, setDraft] = useState('');
  const shown = value === undefined ? field.defaultValue : value;
  const text = draft !== '' && numberOf(draft) === value ? draft : shown === undefined || shown === null ? '' : String(shown);
  const { minimum, maximum } = field;
  const change = (/** @type {string} */ next) => {
    setDraft(next);
    onChange(next === '' ? undefined : numberOf(next));
  };
  const type = (/** @type {InputEvent} */ event) => change(/** @type {HTMLInputElement} */ (event.target).value);
  const box = html`<input type="text" inputmode=${field.kind === 'integer' ? 'numeric' : 'decimal'} autocomplete="off" ...${attributes(props)} class="number ${attributes(props).class}" value=${text} placeholder=${value === null ? 'null' : field.required ? '' : 'not set'} onInput=${type} />`;
  if (minimum === null || maximum === null || minimum >= maximum) return box;
  return html`<div class="slider">
    <input type="range" min=${minimum} max=${maximum} step=${stepOf(field)} value=${typeof shown === 'number' ? shown : minimum} aria-label="${field.title}, slider" onInput=${type} />
    ${box}
  </div>`;
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
