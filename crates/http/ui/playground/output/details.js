// What the tabs beside the output show: logs, metrics, and the raw request and answer.

import { writeExact } from '../../lib/exact_json.js';
import { html } from '../../lib/html.js';
import { useRequest } from '../../lib/use_request.js';
import { CodeBlock } from '../../components/code_block.js';
import { Empty, ErrorNote, Skeleton } from '../../components/notes.js';
import { StreamText } from '../../components/stream_text.js';
import { publicJobPath } from '../start_run.js';

/** @typedef {import('../run_view.js').RunView} RunView */

/**
 * @param {{run: RunView | null, setup: import('../../lib/types.d.ts').ModelDetail['setup']}} props
 */
export function Logs({ run, setup }) {
  return html`<div class="stack">
    ${run !== null && run.logs !== ''
      ? html`<${StreamText} text=${run.logs} generation=${run.generation} label="Logs" class="log" follow=${true} terminal=${true} />`
      : html`<p class="muted">${run === null ? 'The logs of the next run appear here.' : 'This run has written no logs.'}</p>`}
    ${setup?.logs ? html`<details class="setup-logs" open=${run === null}><summary>Setup logs${setup.took_s == null ? '' : ` (${setup.took_s.toFixed(1)} s)`}</summary><${StreamText} text=${setup.logs} label="Setup logs" class="log" terminal=${true} /></details>` : null}
  </div>`;
}

/**
 * @param {{metrics: Record<string, unknown> | undefined}} props
 */
export function Metrics({ metrics }) {
  const entries = Object.entries(metrics ?? {});
  if (entries.length === 0) return html`<p class="muted">This run has recorded no metrics.</p>`;
  return html`<div class="table-wrap"><table><thead><tr><th>Metric</th><th class="number">Value</th></tr></thead>
    <tbody>${entries.map(([name, value]) => html`<tr key=${name}><td class="mono">${name}</td><td class="number mono">${typeof value === 'string' ? value : JSON.stringify(value)}</td></tr>`)}</tbody></table></div>`;
}

/**
 * @param {{run: RunView | null, path: string | null}} props `path` is where the model's runs are requested
 */
export function Raw({ run, path }) {
  if (run === null) return html`<${Empty} icon="code" title="No request yet">Run the model to see its request and answer.</${Empty}>`;
  return html`<div class="stack">
    ${run.job.input == null || path === null ? null : html`<section><h3>Request</h3><${CodeBlock} label="request" text=${`POST /${path}\n\n${shorten({ input: run.job.input })}`} /></section>`}
    <section><h3>Answer</h3><${Answer} run=${run} /></section>
  </div>`;
}

/**
 * @param {{run: RunView}} props
 */
function Answer({ run }) {
  const path = publicJobPath(run.job);
  // The fragment is not sent. It makes a new request when the status changes.
  const { data, error, loading } = useRequest(path === null ? null : `${path}#${run.job.status}`);
  if (error !== null) return html`<${ErrorNote} error=${error} />`;
  if (data !== null) return html`<${CodeBlock} label="answer" text=${shorten(data)} />`;
  if (path === null) return html`<${CodeBlock} label="answer" text=${shorten({ ...run.job, output: run.output ?? null, logs: run.logs })} />`;
  return loading ? html`<${Skeleton} />` : null;
}

const LONG_TEXT = 2000;

/**
 * JSON for people: long texts, such as files, are cut.
 * @param {unknown} value
 */
export function shorten(value) {
  return writeExact(value, 2, (entry) => (typeof entry === 'string' && entry.length > LONG_TEXT ? `${entry.slice(0, 200)}… (${entry.length} characters)` : entry));
}
