// Any JSON value, edited as text.

import { parseExact, writeExact } from '../../../lib/exact_json.js';
import { html, useState } from '../../../lib/html.js';
import { mapFiles, Unparsed } from '../values.js';
import { attributes } from './attributes.js';

/** @typedef {import('./control.js').ControlProps} ControlProps */

/** @param {ControlProps} props */
export function JsonControl(props) {
  const { field, value, onChange } = props;
  const [draft, setDraft] = useState(/** @type {{text: string, value: unknown} | null} */ (null));
  const shown = value === undefined ? field.defaultValue : value;
  const text = draft !== null && draft.value === value ? draft.text : textOf(shown);
  const change = (/** @type {InputEvent} */ event) => {
    const next = /** @type {HTMLTextAreaElement} */ (event.target).value;
    const parsed = parse(next);
    setDraft({ text: next, value: parsed });
    onChange(parsed);
  };
  return html`<textarea rows="2" spellcheck=${false} ...${attributes(props)} class="mono grows ${attributes(props).class}" value=${text} placeholder=${field.required ? 'JSON' : 'not set'} onInput=${change}></textarea>`;
}

/** @param {unknown} value */
function textOf(value) {
  if (value === undefined) return '';
  if (value instanceof Unparsed) return value.text;
  return writeExact(mapFiles(value, (file) => file.marker), 2);
}

/** @param {string} text */
function parse(text) {
  if (text.trim() === '') return undefined;
  try {
    return parseExact(text);
  } catch (error) {
    return new Unparsed(text, `Not valid JSON: ${/** @type {Error} */ (error).message}`);
  }
}
