// The runs of this browser with one model.

import { html } from '../lib/html.js';
import { ago, duration } from '../lib/format.js';
import { ownRuns } from '../lib/own_runs.js';
import { Link, pageUrl } from '../lib/router.js';
import { useSession } from '../lib/session.js';
import { useRequest } from '../lib/use_request.js';
import { Badge } from '../components/badge.js';
import { Empty } from '../components/notes.js';
import { jobPath } from './run_streams.js';

const SHOWN = 10;

/**
 * @param {{model: string}} props
 */
export function OwnRunsPanel({ model }) {
  const { account } = useSession();
  const runs = ownRuns(account).filter((run) => run.model === model).slice(0, SHOWN);
  if (runs.length === 0) return html`<${Empty} title="No runs yet">The runs that you start in this browser are listed here.</${Empty}>`;
  return html`<ul class="own-runs">${runs.map(({ id }) => html`<${OwnRun} key=${id} id=${id} account=${account} />`)}</ul>`;
}

/**
 * @param {{id: string, account: string}} props
 */
function OwnRun({ id, account }) {
  const { data, error } = useRequest(jobPath(account, id));
  return html`<li>
    <${Link} to=${pageUrl('jobs', id)} class="mono job-link">${id}</${Link}>
    ${data === null ? html`<span class="muted">${error === null ? '' : 'removed'}</span>` : html`<${Badge} state=${data.status} /><span class="muted number">${duration(data.ran_s)}</span><span class="muted end">${ago(data.created_at)}</span>`}
  </li>`;
}
