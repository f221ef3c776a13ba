// The panel of a run: its status, timeline and error, and tabs with the output and everything around it.

import { html, useState } from '../../lib/html.js';
import { duration } from '../../lib/format.js';
import { Link, pageUrl } from '../../lib/router.js';
import { Badge } from '../../components/badge.js';
import { Empty, ErrorNote } from '../../components/notes.js';
import { Icon } from '../../components/icon.js';
import { StreamText } from '../../components/stream_text.js';
import { Tabs } from '../../components/tabs.js';
import { useRun } from '../run_view.js';
import { loadingSince, stateLine } from '../state_line.js';
import { TrainedVersion } from '../training.js';
import { describeOutput } from './describe.js';
import { Logs, Metrics, Raw } from './details.js';
import { OutputView } from './output_view.js';
import { Timeline } from './timeline.js';

/** @typedef {import('../run_view.js').RunView} RunView */
/** @typedef {import('../../lib/types.d.ts').ModelDetail} ModelDetail */

/**
 * @param {object} props
 * @param {RunView | null} props.run
 * @param {ModelDetail | null} props.detail
 * @param {(() => void) | null} props.onCancel
 * @param {{id: string, label: string, content: any}[]} [props.extraTabs]
 * @param {import('../../lib/types.d.ts').ModelState} [props.state] the live state of the model
 * @param {boolean} [props.linked] whether the head links to the job's page
 */
export function RunPanel({ run, detail, onCancel, extraTabs = [], state, linked = true }) {
  useRun(run);
  const [tab, setTab] = useState('output');
  const tabs = [
    { id: 'output', label: 'Output' },
    { id: 'logs', label: 'Logs' },
    { id: 'metrics', label: 'Metrics' },
    { id: 'raw', label: 'Raw' },
    ...extraTabs,
  ];
  const schema = detail?.schema ?? null;
  const loading = loadingSince(state);
  return html`<section class="card run-panel" aria-label="Output">
    ${run === null ? null : html`<${RunHead} run=${run} onCancel=${onCancel} linked=${linked} loading=${loading} />`}
    <${Tabs} id="run" label="Run" tabs=${tabs} current=${tab} onChange=${setTab}>
      ${tab === 'output' ? html`<${OutputTab} run=${run} schema=${schema} detail=${detail} loading=${loading} />` : null}
      ${tab === 'logs' ? html`<${Logs} run=${run} setup=${detail?.setup ?? null} />` : null}
      ${tab === 'metrics' ? html`<${Metrics} metrics=${run?.job.metrics} />` : null}
      ${tab === 'raw' ? html`<${Raw} run=${run} path=${detail?.run.path ?? null} />` : null}
      ${extraTabs.find(({ id }) => id === tab)?.content ?? null}
    </${Tabs}>
    <p class="visually-hidden" role="status">${run === null ? '' : announcement(run)}</p>
  </section>`;
}

/**
 * The state of the run for screen readers. It changes with the status, never with the output.
 * @param {RunView} run
 */
function announcement({ job, error }) {
  if (error !== null) return `The run failed: ${error.message}`;
  if (job.status === 'failed') return `The run failed: ${job.error ?? ''}`;
  if (job.status === 'succeeded') return `The run succeeded in ${duration(job.ran_s)}`;
  return job.status === undefined ? 'Loading' : `The run is ${job.status}`;
}

/**
 * @param {{run: RunView, onCancel: (() => void) | null, linked: boolean, loading: number | null}} props
 */
function RunHead({ run, onCancel, linked, loading }) {
  const { job, shownStatus } = run;
  const running = !run.ended && job.status !== undefined;
  return html`<div class="run-head">
    <div class="row">
      ${shownStatus === undefined || !linked ? null : html`<${Badge} state=${shownStatus} />`}
      ${(job.attempt ?? 1) > 1 || run.restarts > 0 ? html`<span class="tag">attempt ${Math.max(job.attempt ?? 1, run.restarts + 1)}</span>` : null}
      ${linked && job.id !== undefined && job.account !== undefined ? html`<${Link} to=${pageUrl('jobs', job.id)} class="job-link mono" title="Open the page of this job">${job.id}</${Link}>` : null}
      ${running && onCancel !== null ? html`<button type="button" class="button small danger end" onClick=${onCancel}><${Icon} name="stop" />Cancel <kbd>Esc</kbd></button>` : null}
    </div>
    <${Timeline} job=${job} running=${running} loading=${loading} />
  </div>`;
}

/**
 * @param {{run: RunView | null, schema: any, detail: ModelDetail | null, loading: number | null}} props
 */
function OutputTab({ run, schema, detail, loading }) {
  if (run === null && detail?.state.health.toUpperCase() === 'SETUP_FAILED') return html`<${FailedSetup} detail=${detail} />`;
  if (run === null) return html`<${Empty} icon="play" title="The output appears here">${describeOutput(schema)}</${Empty}>`;
  const { job, error } = run;
  const empty = run.parts.length === 0;
  return html`<div class="stack">
    ${error === null ? null : html`<${ErrorNote} title=${run.isDirect ? 'The run failed' : 'The run could not be followed'} error=${error} />`}
    ${job.status === 'failed' || job.status === 'aborted' ? html`<${ErrorNote} title=${job.status === 'failed' ? 'The run failed' : 'The run was aborted'} error=${job.error ?? 'The server gives no reason.'} />` : null}
    ${(job.warnings ?? []).map((warning) => html`<div class="note note-warn"><${Icon} name="warning" /><div class="note-text">${warning}</div></div>`)}
    ${job.private ? html`<${Empty} icon="user" title="The output belongs to another account" />` : null}
    ${job.data_removed ? html`<${Empty} icon="info" title="The data of this job has been removed" />` : null}
    ${job.kind === 'training' && job.status === 'succeeded' ? html`<${TrainedVersion} output=${run.output} />` : null}
    ${empty ? html`<${NoOutput} run=${run} isLoading=${loading !== null} />` : html`<${OutputView} run=${run} schema=${schema} />`}
  </div>`;
}

/**
 * Why the model cannot run.
 * @param {{detail: ModelDetail}} props
 */
function FailedSetup({ detail: { state, setup } }) {
  return html`<div class="stack">
    <${ErrorNote} title="The model could not be loaded" error=${stateLine(state, 0).text} />
    ${setup?.logs ? html`<${StreamText} text=${setup.logs} label="Setup logs" class="log" terminal=${true} />` : null}
  </div>`;
}

/**
 * @param {{run: RunView, isLoading: boolean}} props
 */
function NoOutput({ run: { job, ended }, isLoading }) {
  if (job.private || job.data_removed) return null;
  if (!ended) return html`<div class="waiting"><span class="spinner" aria-hidden="true"></span>${waitingWords(job, isLoading)}</div>`;
  if (job.status === 'succeeded') return html`<${Empty} title="The model returned no output" />`;
  if (job.status === 'canceled') return html`<${Empty} icon="stop" title="The run was canceled before it had output" />`;
  return null;
}

/**
 * What a run without output waits for.
 * @param {Partial<import('../../lib/types.d.ts').Job>} job
 * @param {boolean} isLoading whether the model loads
 */
function waitingWords({ status, endpoint }, isLoading) {
  if (isLoading && (status === 'queued' || status === 'starting')) return 'Waiting for the model to load';
  if (status === 'queued') return endpoint === undefined ? 'Waiting for a free slot' : 'Waiting for a worker';
  if (status === 'starting') return 'Starting';
  return status === 'processing' ? 'Running; no output yet' : 'Loading';
}
