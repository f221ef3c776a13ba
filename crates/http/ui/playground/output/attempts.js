// The attempts of a job that was given to a model more than once: when, where, and how each ended.

import { html, useRef } from '../../lib/html.js';
import { duration, time } from '../../lib/format.js';
import { useRequest } from '../../lib/use_request.js';
import { Badge } from '../../components/badge.js';
import { ErrorNote } from '../../components/notes.js';

/** @typedef {import('../../lib/types.d.ts').Attempt} Attempt */

/**
 * The attempts of a job, read again whenever its status or attempt changes.
 * @param {{account: string, id: string, job: Partial<import('../../lib/types.d.ts').Job>, restarts: number}} options
 */
export function useAttempts({ account, id, job, restarts }) {
  // The fragment is not sent. It makes a new request.
  const path = job.status === undefined ? null : `admin/jobs/${encodeURIComponent(account)}/${encodeURIComponent(id)}/attempts#${job.status}-${job.attempt}-${restarts}`;
  const { data, error } = useRequest(path);
  // The last answer is shown until the next one is here.
  const shown = useRef(/** @type {Attempt[]} */ ([]));
  if (data !== null) shown.current = data.attempts;
  return { attempts: shown.current, error };
}

/**
 * @param {{attempts: Attempt[], error: Error | null}} props
 */
export function Attempts({ attempts, error }) {
  if (error === null && attempts.length < 2) return null;
  return html`<section class="card"><div class="card-head"><h2>Attempts</h2></div>
    ${error === null
      ? html`<ol class="attempt-list">${attempts.map((attempt) => html`<li key=${attempt.number}>
          <div class="row"><b class="number">${attempt.number}</b><${Badge} state=${attempt.end ?? 'processing'} />${attempt.runner === undefined ? null : html`<span class="break">${attempt.runner}</span>`}</div>
          <div class="muted number">${timesOf(attempt)}</div>
        </li>`)}</ol>`
      : html`<${ErrorNote} title="The attempts could not be read" error=${error} />`}
  </section>`;
}

/**
 * When an attempt began, and for how long it ran.
 * @param {Attempt} attempt
 * @returns {string}
 */
export function timesOf({ started_at: start, ended_at: end }) {
  if (start === undefined) return '';
  if (end === undefined) return `began ${time(start)}`;
  return `${time(start)} – ${time(end)}, ${duration(Math.max(0, Date.parse(end) - Date.parse(start)) / 1000)}`;
}
