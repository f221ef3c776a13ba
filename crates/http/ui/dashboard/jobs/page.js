// The jobs page: filters in the URL, pages of rows, bulk actions.

import { html, useEffect, useMemo, useRef, useState } from '../../lib/html.js';
import { count, number } from '../../lib/format.js';
import { navigate, pageUrl } from '../../lib/router.js';
import { useSession } from '../../lib/session.js';
import { useSections } from '../../lib/store.js';
import { Empty, ErrorNote, Skeleton } from '../../components/notes.js';
import { cancel, forEach, rerun, resultSummary } from './bulk.js';
import { BulkBar } from './bulk_bar.js';
import { FilterBar } from './filter_bar.js';
import { filtersOf, isFiltered, NO_FILTERS, queryOf } from './filters.js';
import { JobTable } from './job_table.js';
import { keyOf, visibleSelection } from './rows.js';
import { useJobs } from './use_jobs.js';

/** @typedef {import('./rows.js').JobRow} JobRow */
/** @typedef {import('./bulk.js').Result} Result */

/**
 * @param {{route: import('../../lib/router.js').Route}} props
 */
export function JobsPage({ route }) {
  const session = useSession();
  const filters = useMemo(() => filtersOf(route.query), [route.query.toString()]);
  const [selected, setSelected] = useState(/** @type {ReadonlySet<string>} */ (new Set()));
  const hold = useHold();
  const { rows, unseen, next, all, error, refresh } = useJobs(filters, () => hold.pointer.current || selected.size > 0);
  const selection = useMemo(() => visibleSelection(selected, rows ?? []), [selected, rows]);
  const bulk = useBulk(() => refresh(true));
  useEffect(() => setSelected(new Set()), [filters]);

  /** @param {import('./filters.js').Filters} changed */
  const open = (changed) => navigate(pageUrl('jobs') + queryOf(changed));
  const jobs = (rows ?? []).filter((job) => selection.has(keyOf(job)));
  return html`<div class="page-head"><h1>Jobs</h1><${LiveCounts} /></div>
    <div class="stack">
      <${Filters} filters=${filters} isAdmin=${session.role === 'admin' && session.tokens} onChange=${open} />
      ${error ? html`<${ErrorNote} title="The jobs could not be read" error=${error} onRetry=${() => refresh(false)} />` : null}
      <${BulkBar} jobs=${jobs} working=${bulk.working} summary=${bulk.summary} onClear=${() => setSelected(new Set())}
        onAction=${(/** @type {import('./bulk.js').Action} */ action, /** @type {JobRow[]} */ targets) => bulk.start(action, targets)} />
      <div class="new-rows" role="status">${unseen > 0 && filters.before === null ? html`<button type="button" class="button small" onClick=${() => refresh(false)}>Show ${count(unseen, 'new job')}</button>` : null}</div>
      ${rows === null
        ? (error ? null : html`<${Skeleton} lines=${8} />`)
        : rows.length === 0
          ? html`<${NoJobs} filters=${filters} onClear=${() => open({ ...NO_FILTERS })} />`
          : html`<${JobTable} rows=${rows} showAccounts=${all && session.tokens} ownAccount=${session.account} selection=${selection} onSelect=${setSelected} results=${bulk.results} bodyProps=${hold.props} />`}
      <${Pages} filters=${filters} next=${next} onOpen=${open} />
    </div>`;
}

/** How many jobs wait and run now, in all models that the user sees. */
function LiveCounts() {
  const { queues } = useSections('queues');
  if (!queues?.length) return null;
  const sum = (/** @type {'waiting' | 'running'} */ name) => number(queues.reduce((total, queue) => total + queue[name], 0));
  return html`<span class="muted number">${sum('waiting')} waiting, ${sum('running')} running</span>`;
}

/**
 * The filters, with the names that the live data knows.
 * @param {{filters: import('./filters.js').Filters, isAdmin: boolean, onChange: (filters: import('./filters.js').Filters) => void}} props
 */
function Filters({ filters, isAdmin, onChange }) {
  const { queues } = useSections('queues');
  const names = (queues ?? []).map((/** @type {any} */ queue) => queue.model).toSorted();
  const accounts = [...new Set((queues ?? []).flatMap((/** @type {any} */ queue) => queue.accounts.map((/** @type {any} */ share) => share.account ?? '~')))].toSorted();
  return html`<${FilterBar} filters=${filters} models=${names} accounts=${isAdmin ? accounts : null} onChange=${onChange} />`;
}

/**
 * @param {{filters: import('./filters.js').Filters, onClear: () => void}} props
 */
function NoJobs({ filters, onClear }) {
  if (isFiltered(filters)) return html`<div class="card"><${Empty} icon="search" title="No job matches these filters"><button type="button" class="button" onClick=${onClear}>Clear filters</button></${Empty}></div>`;
  if (filters.before !== null) return html`<div class="card"><${Empty} title="There are no older jobs" /></div>`;
  return html`<div class="card"><${Empty} title="No jobs yet">Run a model in the <a href=${pageUrl()}>playground</a> or send a request to the <a href=${pageUrl('docs')}>API</a>. Ended jobs are listed as long as the server keeps them.</${Empty}></div>`;
}

/**
 * @param {{filters: import('./filters.js').Filters, next: string | null, onOpen: (filters: import('./filters.js').Filters) => void}} props
 */
function Pages({ filters, next, onOpen }) {
  if (filters.before === null && next === null) return null;
  return html`<nav class="row pages" aria-label="Pages of jobs">
    <button type="button" class="button" disabled=${filters.before === null} onClick=${() => onOpen({ ...filters, before: null })}>Newest jobs</button>
    <button type="button" class="button" disabled=${next === null} onClick=${() => onOpen({ ...filters, before: next })}>Older jobs</button>
  </nav>`;
}

/** Whether the pointer or the keyboard focus is in the rows, so that none of them may move. */
function useHold() {
  const pointer = useRef(false);
  const hold = () => { pointer.current = true; };
  const release = () => { pointer.current = false; };
  return { pointer, props: { onPointerEnter: hold, onPointerLeave: release, onfocusin: hold, onfocusout: release } };
}

/**
 * A bulk action: runs it, keeps the result of each job and a summary.
 * @param {() => void} onEnd
 */
function useBulk(onEnd) {
  const [results, setResults] = useState(/** @type {ReadonlyMap<string, Result | null>} */ (new Map()));
  const [summary, setSummary] = useState('');
  const [working, setWorking] = useState(false);
  /**
   * @param {import('./bulk.js').Action} action
   * @param {JobRow[]} jobs
   */
  const start = async (action, jobs) => {
    /** @type {Map<string, Result | null>} */
    const all = new Map(jobs.map((job) => [keyOf(job), null]));
    setResults(new Map(all));
    setSummary('');
    setWorking(true);
    await forEach(jobs, action === 'cancel' ? cancel : rerun, (key, result) => {
      all.set(key, result);
      setResults(new Map(all));
    });
    setSummary(resultSummary(action, [...all.values()].filter((result) => result !== null)));
    setWorking(false);
    onEnd();
  };
  return { results, summary, working, start };
}
