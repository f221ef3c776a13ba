// A list of texts, numbers, choices or files: one control per entry.

import { html, useRef } from '../../../lib/html.js';
import { Icon } from '../../../components/icon.js';
import { LocalFile } from '../values.js';
import { Control } from './control.js';

/** @typedef {import('./control.js').ControlProps} ControlProps */

/** @param {ControlProps} props */
export function ListControl({ field, id, value, onChange, describedBy, invalid }) {
  const declared = /** @type {import('../fields.js').Field} */ (field.item);
  // A number that is emptied is this one, because a list has no unset entries.
  const item = isNumber(declared) ? { ...declared, defaultValue: emptyOf(declared) } : declared;
  const shown = value === undefined ? field.defaultValue : value;
  /** @type {unknown[]} */
  const entries = Array.isArray(shown) ? shown : [];
  const replace = (/** @type {number} */ at, /** @type {unknown} */ next) => onChange(entries.map((entry, index) => (index === at ? next ?? emptyOf(item) : entry)));
  const remove = (/** @type {number} */ at) => onChange(entries.filter((_entry, index) => index !== at));
  const add = () => onChange([...entries, emptyOf(item)]);
  return html`<div class="list ${value === undefined ? 'unset' : ''}" role="group" aria-labelledby="${id}-label" aria-describedby=${describedBy}>
    ${entries.map((entry, index) => html`<div class="list-row" key=${index}>
      <${Control} field=${{ ...item, title: `${field.title} ${index + 1}`, name: field.name }} id=${index === 0 ? id : `${id}-${index}`} label="${field.title} ${index + 1}" value=${entry} onChange=${(/** @type {unknown} */ next) => replace(index, next)} describedBy=${describedBy} invalid=${invalid} />
      <button type="button" class="button quiet icon-only" aria-label="Remove entry ${index + 1}" onClick=${() => remove(index)}><${Icon} name="cross" /></button>
    </div>`)}
    <div class="row">${item.kind === 'file' ? html`<${AddFiles} name=${field.name} accept=${item.accept} onFiles=${(/** @type {File[]} */ files) => onChange([...entries, ...files.map((file) => new LocalFile(file))])} />` : null}
    <button type="button" class="button small" onClick=${add}><${Icon} name="plus" />Add ${item.kind === 'file' ? 'URL' : 'entry'}</button>
    ${entries.length === 0 ? html`<span class="hint">${value === undefined ? 'not set' : value === null ? 'null' : 'empty list'}</span>` : null}</div>
  </div>`;
}

/**
 * Adds several files at once.
 * @param {{name: string, accept: string | null, onFiles: (files: File[]) => void}} props
 */
function AddFiles({ name, accept, onFiles }) {
  const picker = useRef(/** @type {HTMLInputElement | null} */ (null));
  const drop = (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    onFiles([...(event.dataTransfer?.files ?? [])]);
  };
  const choose = (/** @type {Event} */ event) => {
    const input = /** @type {HTMLInputElement} */ (event.target);
    onFiles([...(input.files ?? [])]);
    input.value = '';
  };
  return html`<button type="button" class="button small" onClick=${() => picker.current?.click()} onDrop=${drop} onDragOver=${(/** @type {DragEvent} */ event) => event.preventDefault()}><${Icon} name="upload" />Add files</button>
    <input type="file" hidden multiple ref=${picker} accept=${accept} data-input=${name} onChange=${choose} />`;
}

/** @param {import('../fields.js').Field} item */
function isNumber({ kind }) {
  return kind === 'integer' || kind === 'number';
}

/** @param {import('../fields.js').Field} item */
function emptyOf(item) {
  if (item.kind === 'choice') return item.choices[0];
  return isNumber(item) ? item.minimum ?? 0 : '';
}
