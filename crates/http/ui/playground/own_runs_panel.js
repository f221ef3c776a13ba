// The runs of this browser with one model.

import { html } from '../lib/html.js';
import { ago, duration } from '../lib/format.js';
import { ownRuns } from '../lib/own_runs.js';
import { Link, pageUrl } from '../lib/router.js';
import { useSession } from '../lib/session.js';
import { useRequest } from '../lib/use_request.js';
import { Badge } from '../components/badge.js';
import { Empty, ErrorNote, Skeleton } from '../components/notes.js';

const SHOWN = 10;

/** How many jobs of the model are searched for those of this browser. */
const SEARCHED = 200;

/**
 * @param {{detail: import('../lib/types.d.ts').ModelDetail}} props
 */
export function OwnRunsPanel({ detail }) {
  const { account } = useSession();
  const own = new Set(ownRuns(account));
  const model = detail.kind === 'endpoint' ? `runpod/${detail.name}` : detail.name;
  const query = new URLSearchParams({ account, model, limit: String(SEARCHED) });
  const { data, error } = useRequest(own.size === 0 ? null : `admin/jobs?${query}`);
  if (error !== null) return html`<${ErrorNote} title="The runs could not be read" error=${error} />`;
  if (data === null && own.size > 0) return html`<${Skeleton} lines=${3} />`;
  /** @type {any[]} */
  const jobs = data?.jobs ?? [];
  const runs = jobs.filter(({ id }) => own.has(id)).slice(0, SHOWN);
  if (runs.length === 0) return html`<${Empty} title="No runs yet">The runs that you start in this browser are listed here.</${Empty}>`;
  return html`<ul class="own-runs">${runs.map(({ id, status, ran_s, created_at }) => html`<li key=${id}>
    <${Link} to=${pageUrl('jobs', id)} class="mono job-link">${id}</${Link}>
    <${Badge} state=${status} /><span class="muted number">${duration(ran_s)}</span><span class="muted end">${ago(created_at)}</span>
  </li>`)}</ul>`;
}
