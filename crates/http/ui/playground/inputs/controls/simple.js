// Controls that are one element: text, secret, boolean, choice.

import { html, useEffect, useRef, useState } from '../../../lib/html.js';
import { Icon } from '../../../components/icon.js';
import { attributes } from './attributes.js';

/** @typedef {import('./control.js').ControlProps} ControlProps */

/**
 * @param {unknown} value
 */
function textOf(value) {
  return value === undefined || value === null ? '' : String(value);
}

/** @param {ControlProps} props */
export function TextControl(props) {
  const { field, value, onChange } = props;
  const shown = textOf(value === undefined ? field.defaultValue : value);
  const change = (/** @type {InputEvent} */ event) => onChange(/** @type {HTMLInputElement} */ (event.target).value);
  const placeholder = value === null ? 'null' : placeholderOf(props);
  const rest = { ...attributes(props), value: shown, onInput: change, placeholder };
  if (field.kind === 'line') return html`<input type="text" ...${rest} />`;
  return html`<textarea rows=${field.kind === 'longtext' ? 3 : 1} ...${rest} class="grows ${rest.class}"></textarea>`;
}

/** @param {ControlProps} props */
function placeholderOf({ field, value }) {
  if (value !== undefined || field.required) return '';
  return field.defaultValue === '' ? 'empty by default' : 'not set';
}

/** @param {ControlProps} props */
export function SecretControl(props) {
  const [visible, setVisible] = useState(false);
  const { field, value, onChange } = props;
  const change = (/** @type {InputEvent} */ event) => onChange(/** @type {HTMLInputElement} */ (event.target).value);
  return html`<div class="joined">
    <input type=${visible ? 'text' : 'password'} autocomplete="off" spellcheck=${false} ...${attributes(props)} value=${textOf(value)} placeholder=${value === undefined && !field.required ? 'not set' : ''} onInput=${change} />
    <button type="button" class="button" aria-pressed=${visible ? 'true' : 'false'} onClick=${() => setVisible(!visible)}>${visible ? 'Hide' : 'Show'}</button>
  </div>`;
}

/** @param {ControlProps} props */
export function BooleanControl(props) {
  const { field, value, onChange } = props;
  const shown = value === undefined ? field.defaultValue : value;
  const box = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => {
    if (box.current !== null) box.current.indeterminate = typeof shown !== 'boolean';
  }, [shown]);
  return html`<label class="check boolean">
    <input type="checkbox" ref=${box} ...${attributes(props)} checked=${shown === true} onChange=${(/** @type {Event} */ event) => onChange(/** @type {HTMLInputElement} */ (event.target).checked)} />
    <span>${shown === true ? 'true' : shown === false ? 'false' : 'not set'}</span>
  </label>`;
}

/** @param {ControlProps} props */
export function ChoiceControl(props) {
  const { field, value, onChange } = props;
  const shown = value === undefined ? field.defaultValue : value;
  const at = field.choices.findIndex((choice) => choice === shown);
  const change = (/** @type {Event} */ event) => {
    const index = Number(/** @type {HTMLSelectElement} */ (event.target).value);
    onChange(index < 0 ? undefined : field.choices[index]);
  };
  return html`<div class="select">
    <select ...${attributes(props)} value=${String(at)} onChange=${change}>
      ${at < 0 || (!field.required && !field.hasDefault) ? html`<option value="-1">${shown === undefined || shown === null ? 'not set' : `${String(shown)} (not a choice)`}</option>` : null}
      ${field.choices.map((choice, index) => html`<option key=${index} value=${String(index)}>${String(choice)}</option>`)}
    </select><${Icon} name="chevron" />
  </div>`;
}
