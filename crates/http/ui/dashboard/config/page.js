// The effective configuration: each setting, its value, and where the value comes from.

import { html, useState } from '../../lib/html.js';
import { useRequest } from '../../lib/use_request.js';
import { count } from '../../lib/format.js';
import { Empty, ErrorNote, Skeleton } from '../../components/notes.js';
import { CopyButton } from '../../components/copy_button.js';
import { DataTable } from '../data_table.js';
import { SearchBox } from '../panel.js';
import { findSettings, isChanged } from './settings.js';

/** @typedef {import('./settings.js').Setting} Setting */

export function ConfigPage() {
  const { data, error, reload } = useRequest('ui/api/config');
  const [search, setSearch] = useState('');
  const [changedOnly, setChangedOnly] = useState(false);
  return html`<div class="page-head"><h1>Configuration</h1>${data ? html`<span class="muted">${count(data.settings.filter(isChanged).length, 'setting')} changed of ${data.settings.length}</span>` : null}</div>
    <div class="stack">
      ${error ? html`<${ErrorNote} title="The configuration could not be read" error=${error} onRetry=${reload} />` : null}
      ${data
        ? html`<div class="row filters-row"><${SearchBox} value=${search} onInput=${setSearch} label="Search settings" />
            <label class="check"><input type="checkbox" checked=${changedOnly} onChange=${(/** @type {any} */ event) => setChangedOnly(event.target.checked)} />Only changed settings</label></div>
          <${Settings} settings=${findSettings(data.settings, search, changedOnly)} />`
        : (error ? null : html`<${Skeleton} lines=${8} />`)}
    </div>`;
}

/**
 * @param {{settings: Setting[]}} props
 */
function Settings({ settings }) {
  const columns = [
    { id: 'name', label: 'Setting', class: 'cell-title cell-model', cell: (/** @type {Setting} */ setting) => html`<code class="break">${setting.name}</code>` },
    { id: 'value', label: 'Value', class: 'cell-wide', cell: (/** @type {Setting} */ setting) => html`<${Value} setting=${setting} />` },
    { id: 'origin', label: 'Origin', cell: (/** @type {Setting} */ setting) => html`<span class="break ${isChanged(setting) ? '' : 'muted'}">${setting.origin}</span>` },
    { id: 'spelling', label: 'Flag and variable', class: 'cell-model', cell: (/** @type {Setting} */ setting) => html`<span class="two-lines muted">${setting.flag ? html`<code class="break">${setting.flag}</code>` : null}${setting.env ? html`<code class="break">${setting.env}</code>` : null}</span>` },
  ];
  if (settings.length === 0) return html`<div class="card"><${Empty} icon="search" title="No setting matches" /></div>`;
  return html`<${DataTable} label="Settings" columns=${columns} rows=${settings} keyOf=${(/** @type {Setting} */ setting) => setting.name} classOf=${(/** @type {Setting} */ setting) => (isChanged(setting) ? 'changed' : '')} />`;
}

/**
 * @param {{setting: Setting}} props
 */
function Value({ setting }) {
  if (setting.value == null || setting.value === '') return html`<span class="muted">not set</span>`;
  if (setting.value === '(hidden)') return html`<span class="tag">hidden</span>`;
  return html`<span class="value"><code class="break">${setting.value}</code><${CopyButton} text=${setting.value} label="Copy the value of ${setting.name}" /></span>`;
}
