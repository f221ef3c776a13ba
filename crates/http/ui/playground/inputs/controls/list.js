// A list of texts, numbers, choices or files: one control per entry.

import { html } from '../../../lib/html.js';
import { Icon } from '../../../components/icon.js';
import { Control } from './control.js';

/** @typedef {import('./control.js').ControlProps} ControlProps */

/** @param {ControlProps} props */
export function ListControl({ field, id, value, onChange, describedBy, invalid }) {
  const item = /** @type {import('../fields.js').Field} */ (field.item);
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
    <div class="row"><button type="button" class="button small" onClick=${add}><${Icon} name="plus" />Add ${item.kind === 'file' ? 'file' : 'entry'}</button>
    ${entries.length === 0 ? html`<span class="hint">${value === undefined ? 'not set' : value === null ? 'null' : 'empty list'}</span>` : null}</div>
  </div>`;
}

/** @param {import('../fields.js').Field} item */
function emptyOf(item) {
  if (item.kind === 'choice') return item.choices[0];
  if (item.kind === 'integer' || item.kind === 'number') return item.minimum ?? 0;
  return '';
}
