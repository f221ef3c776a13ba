// The form of a model: one row per input, in the order of the schema, or the whole input as JSON.

import { html, useEffect, useRef, useState } from '../../lib/html.js';
import { Icon } from '../../components/icon.js';
import { showToast } from '../../components/toast.js';
import { Control } from './controls/control.js';
import { fromText, LocalFile, toText } from './values.js';

/** @typedef {import('./fields.js').Field} Field */
/** @typedef {import('./values.js').Values} Values */

/**
 * @typedef {object} FormProps
 * @property {Field[]} fields
 * @property {Values} values
 * @property {Record<string, string>} errors by the name of the input
 * @property {(change: (values: Values) => Values) => void} onChange
 */

/** @param {FormProps} props */
export function FieldsForm({ fields, values, errors, onChange }) {
  usePastedFiles(fields, values, onChange);
  const known = new Set(fields.map((field) => field.name));
  const others = Object.keys(values).filter((name) => !known.has(name));
  return html`<div class="fields">
    ${fields.map((field) => html`<${FieldRow} key=${field.name} field=${field} value=${values[field.name]} error=${errors[field.name]} onChange=${(/** @type {unknown} */ value) => onChange((all) => changed(all, field.name, value))} />`)}
    ${others.length === 0 ? null : html`<p class="hint">Also sent, see JSON: ${others.join(', ')}</p>`}
  </div>`;
}

/**
 * @param {Values} values
 * @param {string} name
 * @param {unknown} value undefined: unset
 * @returns {Values}
 */
function changed(values, name, value) {
  const { [name]: _previous, ...rest } = values;
  return value === undefined ? rest : { ...values, [name]: value };
}

/**
 * @param {{field: Field, value: unknown, error: string | undefined, onChange: (value: unknown) => void}} props
 */
function FieldRow({ field, value, error, onChange }) {
  const id = `input-${field.name}`;
  const describedBy = `${id}-hint ${id}-error`;
  const isSet = value !== undefined;
  const canBeNull = field.nullable && field.hasDefault && field.defaultValue !== null && value !== null;
  return html`<div class="field" data-field=${field.name}>
    <div class="field-head">
      <${FieldLabel} field=${field} id=${id} />
      <span class="field-type">${typeWords(field)}</span>
      <span class="field-actions">
        ${canBeNull ? html`<button type="button" class="text-button" onClick=${() => onChange(null)}>Set null</button>` : null}
        ${isSet && !field.required ? html`<button type="button" class="text-button" onClick=${() => onChange(undefined)} aria-label="Unset ${field.title}">Unset</button>` : null}
      </span>
    </div>
    <${Control} field=${field} id=${id} value=${value} onChange=${onChange} describedBy=${describedBy} invalid=${error !== undefined} />
    <p class="hint" id="${id}-hint">${field.description}${field.deprecated ? ' (deprecated)' : ''}</p>
    <p class="field-error" id="${id}-error">${error}</p>
  </div>`;
}

/**
 * @param {{field: Field, id: string}} props
 */
function FieldLabel({ field, id }) {
  const mark = field.required ? html`<span class="required" title="required" aria-hidden="true"> *</span>` : null;
  // A list has no element of its own to label; its group names this text.
  if (field.kind === 'list') return html`<span id="${id}-label" class="field-label">${field.title}${mark}</span>`;
  return html`<label for=${id} class="field-label">${field.title}${mark}</label>`;
}

/**
 * The type of an input in words.
 * @param {Field} field
 * @returns {string}
 */
export function typeWords({ kind, minimum, maximum, item, nullable, required }) {
  /** @type {Record<string, string>} */
  const words = { line: 'text', text: 'text', longtext: 'text', json: 'JSON', choice: 'choice' };
  let base = kind === 'list' && item !== null ? `list of ${words[item.kind] ?? item.kind}s` : words[kind] ?? kind;
  if (minimum !== null && maximum !== null) base += `, ${minimum} to ${maximum}`;
  else if (minimum !== null) base += `, at least ${minimum}`;
  else if (maximum !== null) base += `, at most ${maximum}`;
  return nullable && !required ? `${base}, optional` : base;
}

/**
 * A file that is pasted outside of a file input goes to the first one that is empty. A text that is pasted
 * into a text box stays a text, also if it has an image, as a copy of a page or of a table has.
 * @param {Field[]} fields
 * @param {Values} values
 * @param {FormProps['onChange']} onChange
 */
function usePastedFiles(fields, values, onChange) {
  const latest = useRef(values);
  latest.current = values;
  useEffect(() => {
    const targets = fields.filter((field) => field.kind === 'file');
    if (targets.length === 0) return undefined;
    const paste = (/** @type {ClipboardEvent} */ event) => {
      const file = event.clipboardData?.files[0];
      if (file === undefined || (isTextBox(event.target) && hasText(event.clipboardData))) return;
      event.preventDefault();
      const target = emptyFileField(targets, latest.current);
      if (target === null) showToast('The file was not pasted: every file input has a file. Remove one first.', 'bad');
      else onChange((all) => ({ ...all, [target.name]: new LocalFile(file) }));
    };
    document.addEventListener('paste', paste);
    return () => document.removeEventListener('paste', paste);
  }, [fields, onChange]);
}

/** @param {EventTarget | null} target */
function isTextBox(target) {
  return target instanceof HTMLTextAreaElement || target instanceof HTMLInputElement;
}

/** @param {DataTransfer | null} data */
function hasText(data) {
  return data?.types.includes('text/plain') === true;
}

/**
 * The first file input without a file.
 * @param {Field[]} fields those of files
 * @param {Values} values
 * @returns {Field | null}
 */
function emptyFileField(fields, values) {
  return fields.find((field) => values[field.name] === undefined) ?? null;
}

/** @param {Omit<FormProps, 'fields' | 'errors'> & {error: string | null, onError: (error: string | null) => void}} props */
export function JsonForm({ values, onChange, error, onError }) {
  const [text, setText] = useState(() => toText(values));
  // No file is added in JSON mode. A marker that is removed and pasted again still means its file.
  const first = useRef(values);
  const change = (/** @type {InputEvent} */ event) => {
    const next = /** @type {HTMLTextAreaElement} */ (event.target).value;
    setText(next);
    const result = fromText(next, first.current);
    if ('error' in result) {
      onError(result.error);
    } else {
      onError(null);
      onChange(() => result.values);
    }
  };
  return html`<div class="field json-form">
    <label for="input-json" class="field-label">Input as JSON</label>
    <textarea id="input-json" class="mono" rows="12" spellcheck=${false} value=${text} aria-invalid=${error === null ? null : 'true'} aria-describedby="input-json-error" onInput=${change}></textarea>
    <p class="field-error" id="input-json-error">${error}</p>
    <p class="hint"><${Icon} name="info" /> Inputs that are not in the object are unset: the model uses its defaults.</p>
  </div>`;
}
