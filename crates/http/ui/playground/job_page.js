// The page of one job: a reload attaches to it again.

import { html, useEffect, useMemo, useState } from '../lib/html.js';
import { ago, count, time } from '../lib/format.js';
import { keepRun } from '../lib/own_runs.js';
import { Link, navigate, pageUrl } from '../lib/router.js';
import { useSession } from '../lib/session.js';
import { useRequest } from '../lib/use_request.js';
import { Badge } from '../components/badge.js';
import { CodeBlock } from '../components/code_block.js';
import { CopyButton } from '../components/copy_button.js';
import { Icon } from '../components/icon.js';
import { Empty, ErrorNote, Skeleton } from '../components/notes.js';
import { showToast } from '../components/toast.js';
import { fieldsOf } from './inputs/fields.js';
import { fragmentOf, shareable } from './inputs/link.js';
import { maskedNames } from './inputs/secrets.js';
import { modelUrl } from './model_list.js';
import { Attempts, useAttempts } from './output/attempts.js';
import { shorten } from './output/details.js';
import { RunPanel } from './output/run_panel.js';
import { followJob } from './run_streams.js';
import { RunView, useRun } from './run_view.js';
import { cancelJob, runAgain } from './start_run.js';
import { TASK, TRAIN, trainingOf } from './training.js';

/** @typedef {import('../lib/types.d.ts').ModelDetail} ModelDetail */
/** @typedef {import('../lib/types.d.ts').Job} Job */

/**
 * @param {{route: import('../lib/router.js').Route}} props
 */
export function JobPage({ route }) {
  const session = useSession();
  const [id] = route.params;
  // Administrators may look at jobs of other accounts.
  const account = route.query.get('account') ?? session.account;
  const run = useMemo(() => new RunView(), [account, id]);
  useEffect(() => {
    const stopping = new AbortController();
    void followJob(run, { account, id, signal: stopping.signal });
    return () => stopping.abort();
  }, [run]);
  useRun(run);
  const { job } = run;
  useEffect(() => {
    document.title = `${job.status ?? 'job'} · ${id} · tidegate`;
  }, [job.status, id]);

  const isEndpoint = job.endpoint !== undefined;
  const model = isEndpoint ? job.endpoint : job.model;
  const path = model === undefined ? null : `ui/api/${isEndpoint ? 'endpoints' : 'models'}/${model.split('/').map(encodeURIComponent).join('/')}`;
  const { data } = useRequest(path);
  // The inputs and the output of a training are other ones than those of a prediction.
  const detail = useMemo(() => (data !== null && job.kind === 'training' ? trainingOf(data, '') : data), [data, job.kind]);

  const { attempts, error: attemptsError } = useAttempts({ account, id, job, restarts: run.restarts });

  if (job.status === undefined) {
    if (run.error === null) return html`<${Skeleton} lines=${6} />`;
    return html`<${Empty} icon="search" title="The job could not be read"><p>${run.error.message}</p><${Link} to=${pageUrl('jobs')}>All jobs</${Link}></${Empty}>`;
  }
  const cancel = () => cancelJob(account, id).catch((error) => showToast(`The job could not be canceled: ${error.message}`, 'bad'));
  return html`<div class="page-head job-head">
      <h1 class="mono">${id}</h1><${CopyButton} text=${id} label="Copy id" /><${Badge} state=${job.status} />
      <div class="end"><${JobActions} job=${/** @type {Job} */ (job)} detail=${detail} account=${session.account} /></div>
    </div>
    <${Facts} job=${/** @type {Job} */ (job)} model=${model ?? ''} isEndpoint=${isEndpoint} attempts=${attempts.length} />
    <div class="playground job-body">
      <div class="stack">
        <section class="card"><div class="card-head"><h2>Input</h2></div><${InputOfJob} job=${job} detail=${detail} /></section>
        <${Attempts} attempts=${attempts} error=${attemptsError} />
        <${Webhooks} id=${id} status=${job.status} />
      </div>
      <${RunPanel} run=${run} detail=${detail} onCancel=${cancel} linked=${false} />
    </div>`;
}

/**
 * @param {{job: Job, detail: ModelDetail | null, account: string}} props
 */
function JobActions({ job, detail, account }) {
  const [busy, setBusy] = useState(false);
  if (detail === null || job.input === undefined || job.input === null) return null;
  const { input } = job;
  const isTraining = job.kind === 'training';
  const fields = fieldsOf(detail.schema);
  const { shared, omitted } = shareable(input, fields);
  const hasSecrets = maskedNames(input, fields).length > 0;
  const open = () => navigate(`${modelUrl(detail)}${isTraining ? `?${TASK}=${TRAIN}` : ''}${fragmentOf(shared)}`);
  const again = async () => {
    // The server does not return secrets, so they must be entered again.
    if (hasSecrets) {
      open();
      return;
    }
    setBusy(true);
    try {
      const { id, note } = await runAgain(detail, { version: job.version, input });
      if (note !== null) showToast(`Running again ${note}`);
      keepRun(account, id);
      navigate(pageUrl('jobs', id));
    } catch (error) {
      showToast(`The job could not be run again: ${/** @type {Error} */ (error).message}`, 'bad');
      setBusy(false);
    }
  };
  return html`<button type="button" class="button" onClick=${open} title=${omitted.length === 0 ? null : `Without ${omitted.join(', ')}`}><${Icon} name="code" />Open in playground</button>
    ${isTraining ? null : html`<button type="button" class="button primary" onClick=${again} disabled=${busy}><${Icon} name="refresh" />Run again</button>`}`;
}

/**
 * @param {{job: Job, model: string, isEndpoint: boolean, attempts: number}} props
 */
function Facts({ job, model, isEndpoint, attempts }) {
  const facts = [
    ['Model', html`<${Link} to=${modelUrl({ kind: isEndpoint ? 'endpoint' : 'model', name: model })}>${model}</${Link}>`],
    ['Kind', job.kind],
    ['API', job.api],
    ['Version', job.version === null ? null : html`<span class="mono" title=${job.version}>${job.version?.slice(0, 12)}</span>`],
    ['Account', job.account === '~' ? null : job.account],
    ['Created', html`<span title=${job.created_at}>${time(job.created_at)}, ${ago(job.created_at)}</span>`],
    ['Attempts', attempts > 1 ? attempts : null],
    ['Deadline', job.deadline === null ? null : time(job.deadline)],
    ['Worker', job.worker],
  ];
  return html`<dl class="facts">${facts.filter(([, value]) => value != null && value !== '').map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/**
 * @param {{job: Partial<Job>, detail: ModelDetail | null}} props
 */
function InputOfJob({ job, detail }) {
  if (job.private) return html`<p class="muted">The input belongs to another account.</p>`;
  if (job.input === undefined || job.input === null) return html`<p class="muted">${job.data_removed ? 'The data of this job has been removed.' : 'No input.'}</p>`;
  const secret = new Set(maskedNames(job.input, fieldsOf(detail?.schema)));
  const shown = Object.fromEntries(Object.entries(job.input).map(([name, value]) => [name, secret.has(name) ? '(secret)' : value]));
  return html`<${CodeBlock} label="input" text=${shorten(shown)} />`;
}

/** How many of the last attempts to send a webhook are shown; a receiver may be gone for a day. */
const SHOWN_ATTEMPTS = 3;

/**
 * @param {{id: string, status: string}} props
 */
function Webhooks({ id, status }) {
  // The fragment is not sent. It makes a new request when the status changes.
  const { data, error } = useRequest(`admin/deliveries?job=${encodeURIComponent(id)}#${status}`);
  if (error !== null) return html`<section class="card"><div class="card-head"><h2>Webhooks</h2></div><${ErrorNote} error=${error} /></section>`;
  /** @type {any[]} */
  const deliveries = data?.deliveries ?? [];
  if (deliveries.length === 0) return null;
  return html`<section class="card"><div class="card-head"><h2>Webhooks</h2></div>
    <ul class="deliveries">${deliveries.map((delivery) => html`<li key=${delivery.id}>
      <div class="row"><${Badge} state=${delivery.state} /><span>${delivery.event}</span><span class="muted">${delivery.host}</span></div>
      <${WebhookAttempts} delivery=${delivery} />
    </li>`)}</ul></section>`;
}

/**
 * The last attempts to send a message.
 * @param {{delivery: any}} props
 */
function WebhookAttempts({ delivery }) {
  const earlier = Math.max(0, delivery.attempts.length - SHOWN_ATTEMPTS) + (delivery.earlier_attempts ?? 0);
  const shown = delivery.attempts.slice(-SHOWN_ATTEMPTS);
  return html`${earlier === 0 ? null : html`<p class="attempts muted"><${Link} to=${pageUrl('deliveries')}>${count(earlier, 'earlier attempt')}</${Link}></p>`}
    <ol class="attempts">${shown.map((/** @type {any} */ attempt) => html`<li class="muted number">${time(attempt.at)} · ${attempt.status ?? attempt.error}</li>`)}</ol>
    ${delivery.given_up === undefined ? null : html`<p class="attempts muted">${delivery.given_up}</p>`}`;
}
