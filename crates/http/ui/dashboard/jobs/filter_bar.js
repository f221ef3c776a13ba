// The filters above the jobs table.

import { html, useEffect, useState } from '../../lib/html.js';
import { isFiltered, NO_FILTERS, STATUSES } from './filters.js';

/** @typedef {import('./filters.js').Filters} Filters */

/** How long typing may pause before the filter applies. */
const TYPING_MS = 300;

/**
 * @param {{filters: Filters, models: string[], accounts: string[] | null, onChange: (filters: Filters) => void}} props
 *   `accounts` is null for users, who see their own jobs only
 */
export function FilterBar({ filters, models, accounts, onChange }) {
  /** @param {Partial<Filters>} part */
  const change = (part) => onChange({ ...filters, ...part, before: null });
  const names = filters.model === '' || models.includes(filters.model) ? models : [filters.model, ...models];
  return html`<form class="filters" role="search" aria-label="Filter jobs" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <${Select} id="filter-status" label="Status" value=${filters.status} options=${STATUSES} onChange=${(/** @type {string} */ status) => change({ status })} />
    <${Select} id="filter-model" label="Model" value=${filters.model} options=${[['', 'Any model'], ...names.map((name) => [name, name])]} onChange=${(/** @type {string} */ model) => change({ model })} />
    ${accounts === null ? null : html`<${TextFilter} id="filter-account" label="Account" value=${filters.account} suggestions=${accounts} placeholder="Any account" onChange=${(/** @type {string} */ account) => change({ account })} />`}
    <${TextFilter} id="filter-id" label="Id begins with" value=${filters.idPrefix} placeholder="Any id" onChange=${(/** @type {string} */ idPrefix) => change({ idPrefix })} />
    <button type="button" class="button quiet" disabled=${!isFiltered(filters)} onClick=${() => onChange({ ...NO_FILTERS })}>Clear filters</button>
  </form>`;
}

/**
 * @param {{id: string, label: string, value: string, options: [string, string][], onChange: (value: string) => void}} props
 */
function Select({ id, label, value, options, onChange }) {
  return html`<div class="field"><label for=${id}>${label}</label>
    <select id=${id} value=${value} onChange=${(/** @type {any} */ event) => onChange(event.target.value)}>${options.map(([option, text]) => html`<option key=${option} value=${option}>${text}</option>`)}</select></div>`;
}

/**
 * A box whose filter applies when typing pauses.
 * @param {{id: string, label: string, value: string, placeholder: string, suggestions?: string[], onChange: (value: string) => void}} props
 */
function TextFilter({ id, label, value, placeholder, suggestions = [], onChange }) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (text.trim() === value) return undefined;
    const timer = setTimeout(() => onChange(text.trim()), TYPING_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return html`<div class="field"><label for=${id}>${label}</label>
    <input id=${id} type="search" list=${suggestions.length > 0 ? `${id}-list` : null} value=${text} placeholder=${placeholder} autocomplete="off" spellcheck=${false} onInput=${(/** @type {any} */ event) => setText(event.target.value)} />
    ${suggestions.length > 0 ? html`<datalist id="${id}-list">${suggestions.map((name) => html`<option key=${name} value=${name}></option>`)}</datalist>` : null}</div>`;
}
