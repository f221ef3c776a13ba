// The table of jobs, with a box to select each row and the result of a bulk action.

import { html } from '../../lib/html.js';
import { ago, duration, time } from '../../lib/format.js';
import { Link, pageUrl } from '../../lib/router.js';
import { Badge } from '../../components/badge.js';
import { DataTable } from '../data_table.js';
import { firstLine } from '../format.js';
import { accountOf, keyOf } from './rows.js';

/** @typedef {import('./rows.js').JobRow} JobRow */

/**
 * @param {object} props
 * @param {JobRow[]} props.rows
 * @param {boolean} props.showAccounts
 * @param {string} props.ownAccount
 * @param {ReadonlySet<string>} props.selection
 * @param {(selection: Set<string>) => void} props.onSelect
 * @param {ReadonlyMap<string, import('./bulk.js').Result | null>} props.results null while the request runs
 * @param {Record<string, any>} props.bodyProps
 */
export function JobTable({ rows, showAccounts, ownAccount, selection, onSelect, results, bodyProps }) {
  const columns = [
    { id: 'select', class: 'cell-select', label: html`<${SelectAll} rows=${rows} selection=${selection} onSelect=${onSelect} />`, cell: (/** @type {JobRow} */ job) => html`<${SelectOne} job=${job} selection=${selection} onSelect=${onSelect} />` },
    { id: 'id', label: 'Job', class: 'cell-title', cell: (/** @type {JobRow} */ job) => html`<${JobLink} job=${job} ownAccount=${ownAccount} />` },
    { id: 'status', label: 'Status', cell: (/** @type {JobRow} */ job) => html`<${Badge} state=${job.status} />` },
    { id: 'model', label: 'Model', class: 'cell-model', cell: (/** @type {JobRow} */ job) => html`<span class="two-lines"><span class="cut-lines" title=${job.model}>${job.model}</span><span class="muted">${job.kind === 'prediction' ? job.face : `${job.kind}, ${job.face}`}</span></span>` },
    ...(showAccounts ? [{ id: 'account', label: 'Account', class: 'cell-account', cell: (/** @type {JobRow} */ job) => html`<span class="cut" title=${accountOf(job)}>${job.account ?? 'anonymous'}</span>` }] : []),
    { id: 'created', label: 'Created', cell: (/** @type {JobRow} */ job) => html`<time datetime=${job.created_at} title=${time(job.created_at)}>${ago(job.created_at)}</time>` },
    { id: 'waited', label: 'Waited', number: true, cell: (/** @type {JobRow} */ job) => duration(job.waited_s) },
    { id: 'ran', label: 'Ran', number: true, cell: (/** @type {JobRow} */ job) => duration(job.ran_s) },
    { id: 'error', label: 'Error', class: 'cell-error', cell: (/** @type {JobRow} */ job) => html`<${Outcome} job=${job} result=${results.get(keyOf(job))} ownAccount=${ownAccount} />` },
  ];
  return html`<${DataTable} label="Jobs" columns=${columns} rows=${rows} keyOf=${keyOf} bodyProps=${bodyProps} classOf=${(/** @type {JobRow} */ job) => (selection.has(keyOf(job)) ? 'selected' : '')} />`;
}

/**
 * @param {{job: JobRow, ownAccount: string}} props
 */
function JobLink({ job, ownAccount }) {
  return html`<${Link} to=${jobUrl(job.id, accountOf(job), ownAccount)} class="job-id"><code>${job.id}</code></${Link}>`;
}

/**
 * The page of a job. It names the account if that is not the viewer's.
 * @param {string} id
 * @param {string} account
 * @param {string} ownAccount
 * @returns {string}
 */
export function jobUrl(id, account, ownAccount) {
  const url = pageUrl('jobs', id);
  return account === ownAccount ? url : `${url}?${new URLSearchParams({ account })}`;
}

/**
 * The error of a job, below the result of a bulk action.
 * @param {{job: JobRow, result: import('./bulk.js').Result | null | undefined, ownAccount: string}} props
 */
function Outcome({ job, result, ownAccount }) {
  const error = job.error ? html`<span class="cut-lines" title=${job.error}>${firstLine(job.error)}</span>` : null;
  if (result === undefined) return error;
  if (result === null) return html`<span class="muted">working…</span>`;
  const link = result.ok && result.id !== undefined ? html` <${Link} to=${jobUrl(result.id, ownAccount, ownAccount)}>open the new job</${Link}>` : null;
  return html`<span class=${result.ok ? 'good-text' : 'bad-text'}>${result.text}${link}</span>${error}`;
}

/**
 * @param {{job: JobRow, selection: ReadonlySet<string>, onSelect: (selection: Set<string>) => void}} props
 */
function SelectOne({ job, selection, onSelect }) {
  const key = keyOf(job);
  const change = () => {
    const next = new Set(selection);
    if (!next.delete(key)) next.add(key);
    onSelect(next);
  };
  return html`<label class="select-box"><input type="checkbox" aria-label="Select job ${job.id}" checked=${selection.has(key)} onChange=${change} /></label>`;
}

/**
 * @param {{rows: JobRow[], selection: ReadonlySet<string>, onSelect: (selection: Set<string>) => void}} props
 */
function SelectAll({ rows, selection, onSelect }) {
  const all = rows.length > 0 && rows.every((job) => selection.has(keyOf(job)));
  const change = () => onSelect(all ? new Set() : new Set(rows.map(keyOf)));
  return html`<label class="select-box"><input type="checkbox" aria-label="Select all jobs of this page" checked=${all} indeterminate=${!all && selection.size > 0} onChange=${change} /></label>`;
}
