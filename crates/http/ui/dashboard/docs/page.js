// The docs page: the operations of every API that is on, from their OpenAPI documents.

import { html, useMemo, useState } from '../../lib/html.js';
import { rootUrl } from '../../lib/root.js';
import { useSession } from '../../lib/session.js';
import { useRequest } from '../../lib/use_request.js';
import { CodeBlock } from '../../components/code_block.js';
import { Icon } from '../../components/icon.js';
import { Empty, ErrorNote, Skeleton } from '../../components/notes.js';
import { Tabs } from '../../components/tabs.js';
import { DataTable } from '../data_table.js';
import { SearchBox } from '../panel.js';
import { byApi, curl, matches, operations } from './openapi.js';

/** @typedef {import('./openapi.js').Operation} Operation */
/** @typedef {import('./openapi.js').Parameter} Parameter */
/** `base` is the path that the document's paths are below. @typedef {{api: string, title: string, base?: string, openapi: any}} ApiDocument */

export function DocsPage() {
  const { data, error, reload } = useRequest('ui/api/docs');
  return html`<div class="page-head"><h1>API</h1><span class="muted">at <code class="break">${rootUrl.href}</code></span></div>
    ${error ? html`<${ErrorNote} title="The documentation could not be read" error=${error} onRetry=${reload} />` : null}
    ${data === null && error === null ? html`<${Skeleton} lines=${8} />` : null}
    ${data?.apis.length === 0 ? html`<div class="card"><${Empty} icon="code" title="No API is on">The server's <code>--api</code> flags choose the APIs.</${Empty}></div>` : null}
    ${data?.apis.length > 0 ? html`<${Apis} apis=${data.apis} />` : null}`;
}

/**
 * @param {{apis: ApiDocument[]}} props
 */
function Apis({ apis }) {
  const groups = useMemo(() => byApi(apis), [apis]);
  const [search, setSearch] = useState('');
  const [current, setCurrent] = useState(groups[0].api);
  const [title, setTitle] = useState('');
  const { documents } = groups.find(({ api }) => api === current) ?? groups[0];
  const shown = documents.find((document) => document.title === title) ?? documents[0];
  const found = useMemo(() => operations(shown.openapi, shown.base), [shown]).filter((op) => matches(op, search));
  return html`<div class="stack"><${SearchBox} value=${search} onInput=${setSearch} label="Search operations" />
    <${Tabs} id="apis" label="APIs" tabs=${groups.map((group) => ({ id: group.api, label: group.title }))} current=${current} onChange=${setCurrent}>
      <div class="stack" key=${shown.title}>
        ${documents.length > 1 ? html`<${DocumentSelect} documents=${documents} shown=${shown} onChange=${setTitle} />` : null}
        ${found.length === 0 ? html`<${Empty} icon="search" title="No operation of this API matches" />` : null}
        ${found.map((op) => html`<${OperationCard} key="${op.method} ${op.path}" op=${op} />`)}
      </div>
    </${Tabs}></div>`;
}

/**
 * Chooses one of the documents of an API: that of a model.
 * @param {{documents: ApiDocument[], shown: ApiDocument, onChange: (title: string) => void}} props
 */
function DocumentSelect({ documents, shown, onChange }) {
  return html`<div class="field document-select"><label for="document">Model</label>
    <select id="document" value=${shown.title} onChange=${(/** @type {any} */ event) => onChange(event.target.value)}>
      ${documents.map(({ title }) => html`<option key=${title} value=${title}>${title.replace(/^[^:]*: /, '')}</option>`)}
    </select></div>`;
}

/**
 * @param {{op: Operation}} props
 */
function OperationCard({ op }) {
  const [open, setOpen] = useState(false);
  return html`<details class="operation" onToggle=${(/** @type {any} */ event) => setOpen(event.currentTarget.open)}>
    <summary><${Icon} name="chevron" /><span class="method method-${op.method.toLowerCase()}">${op.method}</span><code class="path">${op.path}</code><span class="muted operation-summary">${op.summary}</span>${op.deprecated ? html`<span class="tag">deprecated</span>` : null}</summary>
    ${open ? html`<${OperationDetail} op=${op} />` : null}
  </details>`;
}

/**
 * @param {{op: Operation}} props
 */
function OperationDetail({ op }) {
  const { tokens } = useSession();
  return html`<div class="operation-detail stack">
    ${op.description ? html`<p class="prose">${op.description}</p>` : null}
    ${op.parameters.length > 0 ? html`<div><h2>Parameters</h2><${Parameters} op=${op} /></div>` : null}
    <div><h2>Example</h2><${CodeBlock} label="curl command for ${op.method} ${op.path}" text=${curl(op, rootUrl, tokens)} /></div>
    ${op.contentType === 'application/json' ? html`<div><h2>Body</h2><${CodeBlock} label="body of ${op.method} ${op.path}" text=${JSON.stringify(op.body, null, 2)} /></div>` : null}
    ${op.responses.length > 0 ? html`<div><h2>Responses</h2><ul class="responses">${op.responses.map(({ status, description }) => html`<li key=${status}><code>${status}</code> ${description}</li>`)}</ul></div>` : null}
  </div>`;
}

/**
 * @param {{op: Operation}} props
 */
function Parameters({ op }) {
  const columns = [
    { id: 'name', label: 'Name', class: 'cell-title', cell: (/** @type {Parameter} */ parameter) => html`<span class="row"><code class="break">${parameter.name}</code>${parameter.required ? html`<span class="tag">required</span>` : null}</span>` },
    { id: 'in', label: 'In', cell: (/** @type {Parameter} */ parameter) => parameter.in },
    { id: 'type', label: 'Type', cell: (/** @type {Parameter} */ parameter) => html`<code class="break">${parameter.type}</code>` },
    { id: 'default', label: 'Default', cell: (/** @type {Parameter} */ parameter) => (parameter.fallback === undefined ? '–' : html`<code class="break">${JSON.stringify(parameter.fallback)}</code>`) },
    { id: 'description', label: 'Description', class: 'cell-wide', cell: (/** @type {Parameter} */ parameter) => (parameter.description ? html`<span class="break">${parameter.description}</span>` : null) },
  ];
  return html`<${DataTable} label="Parameters of ${op.method} ${op.path}" columns=${columns} rows=${op.parameters} keyOf=${(/** @type {Parameter} */ parameter) => `${parameter.in} ${parameter.name}`} />`;
}
