// The page of one job: a reload attaches to it again.

import { requestJson } from '../lib/api.js';
import { html, useEffect, useMemo, useRef, useState } from '../lib/html.js';
import { count, time } from '../lib/format.js';
import { keepRun } from '../lib/own_runs.js';
import { usePolling } from '../lib/poll.js';
import { Link, navigate, pageUrl } from '../lib/router.js';
import { useSession } from '../lib/session.js';
import { useSections } from '../lib/store.js';
import { useRequest } from '../lib/use_request.js';
import { Ago } from '../components/ago.js';
import { Badge } from '../components/badge.js';
import { CodeBlock } from '../components/code_block.js';
import { CopyButton } from '../components/copy_button.js';
import { Icon } from '../components/icon.js';
import { Empty, ErrorNote, Skeleton } from '../components/notes.js';
import { showToast } from '../components/toast.js';
import { fieldsOf } from './inputs/fields.js';
import { fragmentOf, shareable } from './inputs/link.js';
import { hasNames, maskedNames } from './inputs/secrets.js';
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

  const { models } = useSections('models');
  const live = models?.find((section) => section.name === model && (section.kind === 'endpoint') === isEndpoint);
  // Another version of the model may load while the job's own one is ready.
  const state = live?.version === job.version || isEndpoint ? live?.state : undefined;

  const cancel = () => cancelJob(account, id).catch((error) => showToast(`The job could not be canceled: ${error.message}`, 'bad'));
  useEscape(() => {
    if (job.status !== undefined && !run.ended) void cancel();
  });

  const { attempts, error: attemptsError } = useAttempts({ account, id, job, restarts: run.restarts });

  if (job.status === undefined) {
    if (run.error === null) return html`<${Skeleton} lines=${6} />`;
    return html`<${Empty} icon="search" title="The job could not be read"><p>${run.error.message}</p><${Link} to=${pageUrl('jobs')}>All jobs</${Link}></${Empty}>`;
  }
  return html`<div class="page-head job-head">
      <h1 class="mono">${id}</h1><${CopyButton} text=${id} label="Copy id" /><${Badge} state=${run.shownStatus} />
      <div class="end"><${JobActions} job=${/** @type {Job} */ (job)} detail=${detail} account=${session.account} /></div>
    </div>
    <${Facts} job=${/** @type {Job} */ (job)} model=${model ?? ''} isEndpoint=${isEndpoint} attempts=${attempts.length} />
    <div class="playground job-body">
      <div class="stack">
        <section class="card"><div class="card-head"><h2>Input</h2></div><${InputOfJob} job=${job} detail=${detail} /></section>
        <${Attempts} attempts=${attempts} error=${attemptsError} />
        <${Webhooks} key=${id} id=${id} ended=${run.ended} />
      </div>
      <${RunPanel} run=${run} detail=${detail} onCancel=${cancel} state=${state} linked=${false} />
    </div>`;
}

/**
 * Calls a function when Escape is pressed, wherever the focus is.
 * @param {() => void} onEscape
 */
function useEscape(onEscape) {
  const latest = useRef(onEscape);
  latest.current = onEscape;
  useEffect(() => {
    const press = (/** @type {KeyboardEvent} */ event) => {
      if (event.key === 'Escape' && !event.defaultPrevented) latest.current();
    };
    document.addEventListener('keydown', press);
    return () => document.removeEventListener('keydown', press);
  }, []);
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
  const { shared, omitted } = shareable(hasNames(input) ? input : {}, fields);
  const hasSecrets = maskedNames(input, fields).length > 0;
  const open = () => navigate(`${modelUrl(detail)}${isTraining ? `?${TASK}=${TRAIN}` : ''}${fragmentOf({ shared, omitted })}`);
  const again = async () => {
    // The server does not return secrets, so they must be entered again.
    if (hasSecrets) {
      open();
      showToast(`The job was not run again: the server does not return secrets. Enter ${omitted.join(', ')} and run.`);
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
  return html`${hasNames(input) ? html`<button type="button" class="button" onClick=${open} title=${omitted.length === 0 ? null : `Without ${omitted.join(', ')}`}><${Icon} name="code" />Open in playground</button>` : null}
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
    ['Created', html`<span title=${job.created_at}>${time(job.created_at)}, <${Ago} at=${job.created_at} /></span>`],
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
  const shown = hasNames(job.input) ? Object.fromEntries(Object.entries(job.input).map(([name, value]) => [name, secret.has(name) ? '(secret)' : value])) : job.input;
  return html`<${CodeBlock} label="input" text=${shorten(shown)} />`;
}

/** How many of the last attempts to send a webhook are shown; a receiver may be gone for a day. */
const SHOWN_ATTEMPTS = 3;

/** The time between two requests for the webhooks of a job. */
const WEBHOOKS_MS = 2000;
/** The last message may be recorded after the end of the job, so one answer without open messages is not enough. */
const LAST_READS = 2;

/**
 * The webhooks of a job, read until the job has ended and all of them are sent or given up.
 * @param {{id: string, ended: boolean}} props
 */
function Webhooks({ id, ended }) {
  const [{ data, error }, setAnswer] = useState(/** @type {{data: any, error: Error | null}} */ ({ data: null, error: null }));
  const settledReads = useRef(0);
  usePolling(async () => {
    if (settledReads.current === LAST_READS) return;
    try {
      const answer = await requestJson(`admin/deliveries?job=${encodeURIComponent(id)}`);
      settledReads.current = ended && answer.deliveries.every(isSettled) ? settledReads.current + 1 : 0;
      setAnswer({ data: answer, error: null });
    } catch (cause) {
      setAnswer({ data: null, error: /** @type {Error} */ (cause) });
    }
  }, WEBHOOKS_MS, [id]);
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

/** @param {{state: string}} delivery */
function isSettled({ state }) {
  return state === 'delivered' || state === 'failed';
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
