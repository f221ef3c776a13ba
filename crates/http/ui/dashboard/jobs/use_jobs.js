// The rows of the jobs table: read from the server at an interval, and kept in place while the user
// works with them.

import { requestJson } from '../../lib/api.js';
import { useCallback, useEffect, useRef, useState } from '../../lib/html.js';
import { usePolling } from '../../lib/poll.js';
import { requestPath } from './filters.js';
import { accountOf, keyOf, merge, outdated } from './rows.js';

/** @typedef {import('./rows.js').JobRow} JobRow */

const REFRESH_MS = 2000;

/** How many outdated rows one refresh reads again. */
const MAX_OUTDATED = 10;

/**
 * @typedef {object} JobsState
 * @property {JobRow[] | null} rows null until the first answer
 * @property {number} unseen newer jobs that are not shown yet
 * @property {string | null} next the cursor of the next page
 * @property {boolean} all whether the jobs of all accounts are listed
 * @property {Error | null} error of the last request
 */

/**
 * @param {import('./filters.js').Filters} filters
 * @param {() => boolean} isHeld whether rows must keep their place now
 * @returns {JobsState & {refresh: (held: boolean) => Promise<void>}}
 */
export function useJobs(filters, isHeld) {
  const path = requestPath(filters);
  /** @type {JobsState} */
  const nothing = { rows: null, unseen: 0, next: null, all: false, error: null };
  const [state, setState] = useState(nothing);
  const shown = useRef(state);
  shown.current = state;
  const current = useRef(path);
  current.current = path;

  const refresh = useCallback(async (/** @type {boolean} */ held) => {
    try {
      const answer = await requestJson(path);
      const rows = shown.current.rows ?? [];
      const jobs = held ? [...answer.jobs, ...(await readAgain(outdated(rows, answer.jobs)))] : answer.jobs;
      if (current.current !== path) return;
      setState((previous) => ({ ...place(previous.rows ?? [], answer.jobs, jobs, held), next: answer.next ?? null, all: answer.scope === 'all', error: null }));
    } catch (error) {
      if (current.current === path) setState((previous) => ({ ...previous, error: /** @type {Error} */ (error) }));
    }
  }, [path]);

  useEffect(() => setState(nothing), [path]);
  usePolling(() => refresh(isHeld()), REFRESH_MS, [path]);
  return { ...state, refresh };
}

/**
 * @param {JobRow[]} rows
 * @param {JobRow[]} answer
 * @param {JobRow[]} known the answer, and rows that were read again
 * @param {boolean} held
 */
function place(rows, answer, known, held) {
  const { rows: merged } = merge(rows, known, held);
  const { unseen } = merge(rows, answer, held);
  return { rows: merged, unseen };
}

/**
 * Reads jobs by their ids.
 * @param {JobRow[]} jobs
 * @returns {Promise<JobRow[]>}
 */
async function readAgain(jobs) {
  const requests = jobs.slice(0, MAX_OUTDATED).map(async (job) => {
    const query = new URLSearchParams({ id: job.id, account: accountOf(job) });
    const answer = await requestJson(`admin/jobs?${query}`);
    return answer.jobs.filter((/** @type {JobRow} */ found) => keyOf(found) === keyOf(job));
  });
  return (await Promise.all(requests)).flat();
}
