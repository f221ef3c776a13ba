// The playground of one model: its form, Run, and the output as it is produced.

import { ApiError } from '../lib/api.js';
import { html, useCallback, useEffect, useMemo, useRef, useState } from '../lib/html.js';
import { keepRun } from '../lib/own_runs.js';
import { useSession } from '../lib/session.js';
import { CodeBlock } from '../components/code_block.js';
import { copyText } from '../components/copy_button.js';
import { Icon } from '../components/icon.js';
import { ErrorNote } from '../components/notes.js';
import { showToast } from '../components/toast.js';
import { Chat } from './chat/chat.js';
import { CodePanel } from './code_panel.js';
import { workerEnvironment } from './commands.js';
import { fieldsOf } from './inputs/fields.js';
import { FieldsForm, JsonForm } from './inputs/form.js';
import { fragmentOf, inputsOfFragment, shareable } from './inputs/link.js';
import { hasNames, withoutSecrets } from './inputs/secrets.js';
import { toInput, unparsedErrors, withoutEmptyFiles } from './inputs/values.js';
import { RunPanel } from './output/run_panel.js';
import { OwnRunsPanel } from './own_runs_panel.js';
import { followJob, runDirectly } from './run_streams.js';
import { RunView } from './run_view.js';
import { cancelJob, runOfVersion, submitJob, uploadFile } from './start_run.js';
import { StateLine } from './state_line.js';
import { DestinationField, proposedDestination, submitTraining, TASK, TRAIN, trainingOf } from './training.js';

/** @typedef {import('../lib/types.d.ts').ModelDetail} ModelDetail */
/** @typedef {import('../lib/types.d.ts').ModelState} ModelState */
/** @typedef {import('./inputs/values.js').Values} Values */

/** @typedef {'form' | 'chat' | 'train'} ViewName */

/** @type {Record<ViewName, string>} */
const VIEWS = { form: 'Form', chat: 'Chat', train: 'Train' };

/**
 * @param {{detail: ModelDetail, state: ModelState}} props
 */
export function Playground({ detail, state }) {
  const chatOnly = detail.run.style === 'chat';
  const isTraining = detail.trainable && new URLSearchParams(location.search).get(TASK) === TRAIN;
  const [view, setView] = useState(/** @type {ViewName} */ (chatOnly ? 'chat' : isTraining ? 'train' : 'form'));
  const [version, setVersion] = useState(/** @type {string | null} */ (null));
  const views = /** @type {ViewName[]} */ (['form', ...(detail.chat && !chatOnly ? ['chat'] : []), ...(detail.trainable ? ['train'] : [])]);
  const shown = useMemo(() => ({ ...detail, run: runOfVersion(detail, version) }), [detail, version]);
  const known = detail.schema === null ? 'unknown' : 'known';
  const show = (/** @type {ViewName} */ name) => {
    setParameter(TASK, name === 'train' ? TRAIN : null);
    setParameter(JOB, null);
    setView(name);
  };
  return html`<div class="model-head">
      <div class="model-title"><h1>${detail.name}</h1><${VersionChoice} detail=${detail} chosen=${version ?? detail.version} onChange=${setVersion} />
        ${views.length > 1 ? html`<${ViewSwitch} views=${views} view=${view} onChange=${show} />` : null}</div>
      <${StateLine} state=${state} />
      ${state.health === 'NO_WORKERS' ? html`<${NoWorkers} endpoint=${detail.name} />` : null}
      ${detail.description ? html`<p class="model-description muted">${detail.description}</p>` : null}
    </div>
    ${view === 'chat' ? html`<${Chat} detail=${detail} />` : null}
    ${view === 'form' ? html`<${FormView} key=${known} detail=${shown} state=${state} />` : null}
    ${view === 'train' ? html`<${TrainingView} key=${known} detail=${detail} state=${state} />` : null}`;
}

/**
 * How to start a worker.
 * @param {{endpoint: string}} props
 */
function NoWorkers({ endpoint }) {
  return html`<div class="no-workers"><p class="muted">Runs wait until a worker is connected. This command prints the environment of one:</p><${CodeBlock} label="the command" text=${workerEnvironment(endpoint)} /></div>`;
}

/**
 * The version, or the choice between those that can be run.
 * @param {{detail: ModelDetail, chosen: string | null, onChange: (version: string) => void}} props
 */
function VersionChoice({ detail, chosen, onChange }) {
  if (chosen === null) return null;
  const versions = detail.versions.filter(({ runnable }) => runnable);
  if (versions.length < 2) return html`<span class="tag mono" title="Version ${chosen}">${chosen.slice(0, 12)}</span>`;
  return html`<select class="version-choice mono" aria-label="Version" value=${chosen} onChange=${(/** @type {Event} */ event) => onChange(/** @type {HTMLSelectElement} */ (event.target).value)}>
    ${versions.map(({ version }) => html`<option key=${version} value=${version}>${version.slice(0, 12)}${version === detail.version ? '' : ' (trained)'}</option>`)}
  </select>`;
}

/**
 * @param {{views: ViewName[], view: ViewName, onChange: (view: ViewName) => void}} props
 */
function ViewSwitch({ views, view, onChange }) {
  return html`<div class="switch" role="group" aria-label="View">
    ${views.map((name) => html`<button type="button" key=${name} aria-pressed=${view === name ? 'true' : 'false'} onClick=${() => onChange(name)}>${VIEWS[name]}</button>`)}
  </div>`;
}

/**
 * @param {{detail: ModelDetail, state: ModelState}} props
 */
function TrainingView({ detail, state }) {
  const { account } = useSession();
  const [destination, setDestination] = useState(() => proposedDestination(account, detail.name));
  const training = useMemo(() => trainingOf(detail, destination), [detail, destination]);
  return html`<${FormView} detail=${training} state=${state} submit=${submitTraining} head=${html`<${DestinationField} value=${destination} onChange=${setDestination} />`} />`;
}

/** The parameter of the URL with the id of a job. */
const JOB = 'job';

/**
 * Changes a parameter of the URL: a reload shows the same view, and attaches to the job that it names.
 * @param {string} name
 * @param {string | null} value
 */
function setParameter(name, value) {
  const url = new URL(location.href);
  if (value === null) url.searchParams.delete(name);
  else url.searchParams.set(name, value);
  history.replaceState(null, '', url);
}

/**
 * @param {object} props
 * @param {ModelDetail} props.detail
 * @param {ModelState} props.state
 * @param {typeof submitJob} [props.submit]
 * @param {any} [props.head] what stands above the inputs
 */
function FormView({ detail, state, submit = submitJob, head = null }) {
  const fields = useMemo(() => fieldsOf(detail.schema), [detail.schema]);
  const linked = useMemo(() => inputsOfFragment(location.hash), []);
  const [values, setValues] = useState(/** @type {Values} */ (linked?.shared ?? detail.example ?? {}));
  const [mode, setMode] = useState(fields.length === 0 ? 'json' : 'form');
  const [jsonError, setJsonError] = useState(/** @type {string | null} */ (null));
  const [formKey, setFormKey] = useState(0);
  const runner = useRunner(detail, submit, (input) => {
    setValues(input);
    setJsonError(null);
    setFormKey((key) => key + 1);
  });

  /** Whether the values are those that the page shows. If not, the user must correct the JSON first. */
  const isComplete = () => {
    if (jsonError === null) return true;
    showToast('The JSON is not valid. Correct it first, or reset the inputs.', 'bad');
    document.getElementById('input-json')?.focus();
    return false;
  };
  const run = () => {
    if (!isComplete()) return;
    void runner.start(values);
    // On a narrow page the output is below the form.
    if (matchMedia('(max-width: 960px)').matches) document.querySelector('.run-panel')?.scrollIntoView({ block: 'start' });
  };
  const reset = () => {
    setValues(detail.example ?? {});
    setJsonError(null);
    setFormKey((key) => key + 1);
    runner.clearErrors();
  };
  useKeys({ onRun: run, onCancel: runner.cancel });

  const copyLink = () => {
    const { shared, omitted } = shareable(values, fields);
    const url = new URL(location.pathname, location.href);
    url.hash = fragmentOf({ shared, omitted });
    copyText(url.href).then(() => showToast(omitted.length === 0 ? 'Link copied' : `Link copied, without ${omitted.join(', ')}`, 'good'), () => showToast('The link could not be copied', 'bad'));
  };

  const codeTab = { id: 'code', label: 'Code', content: html`<${CodePanel} detail=${detail} values=${values} />` };
  const runsTab = { id: 'runs', label: 'History', content: html`<${OwnRunsPanel} detail=${detail} />` };
  return html`<div class="playground">
    <form class="card form-card" aria-label="Input" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); run(); }} novalidate>
      <div class="form-head">
        <h2>Input</h2>
        ${fields.length === 0 ? null : html`<div class="switch" role="group" aria-label="Input as">
          ${['form', 'json'].map((name) => html`<button type="button" key=${name} aria-pressed=${mode === name ? 'true' : 'false'} onClick=${() => isComplete() && setMode(name)}>${name === 'form' ? 'Form' : 'JSON'}</button>`)}
        </div>`}
      </div>
      <div class="form-body">
        ${linked === null ? null : html`<${LinkNote} omitted=${linked.omitted} />`}
        ${head}
        ${mode === 'form'
          ? html`<${FieldsForm} key=${formKey} fields=${fields} values=${values} errors=${runner.fieldErrors} onChange=${setValues} />`
          : html`<${JsonForm} key=${formKey} values=${values} onChange=${setValues} error=${jsonError} onError=${setJsonError} />`}
        ${detail.schema === null ? html`<p class="hint">${detail.kind === 'model' || detail.kind === 'trained' ? 'The inputs of this model are known when it is loaded. Until then, enter them as JSON.' : detail.kind === 'routed' ? 'No backend of this model tells its inputs; enter them as JSON.' : 'The server does not know the inputs; enter them as JSON.'}</p>` : null}
      </div>
      <div class="form-foot">
        ${runner.error === null ? null : html`<${ErrorNote} error=${summary(runner.error, mode === 'form' ? fields : [])} />`}
        <div class="row">
          <button type="submit" class="button primary run-button" disabled=${runner.sending}><${Icon} name="play" />${runner.sending ? 'Sending…' : 'Run'} <kbd>Ctrl Enter</kbd></button>
          <button type="button" class="button quiet" onClick=${reset}>Reset</button>
          <button type="button" class="button quiet end" onClick=${copyLink} aria-label="Copy link" title="Copy a link to this page with these inputs"><${Icon} name="link" /><span class="wide-only">Copy link</span></button>
        </div>
      </div>
    </form>
    <${RunPanel} run=${runner.run} detail=${detail} onCancel=${runner.cancel} state=${state} extraTabs=${[codeTab, ...(detail.run.style === 'cog' ? [] : [runsTab])]} />
  </div>`;
}

/**
 * @param {{omitted: string[]}} props
 */
function LinkNote({ omitted }) {
  const without = omitted.length === 0 ? '' : ` It does not have ${omitted.join(', ')}: links carry no secrets and no files. Enter them here.`;
  return html`<div class="note"><${Icon} name="link" /><div class="note-text">The inputs come from a link. Check them before you run the model.${without}</div></div>`;
}

/**
 * The message above Run. Messages that are shown at their fields are not repeated.
 * @param {ApiError} error
 * @param {import('./inputs/fields.js').Field[]} fields those that are shown
 */
function summary(error, fields) {
  const names = Object.keys(error.fields ?? {});
  if (names.length === 0 || !names.every((name) => fields.some((field) => field.name === name))) return error.message;
  return names.length === 1 ? 'One input is not valid.' : `${names.length} inputs are not valid.`;
}

/**
 * Starts runs of a model and follows the latest one.
 * @param {ModelDetail} detail
 * @param {typeof submitJob} submit
 * @param {(input: Values) => void} onInput called with the input of a job that the page attaches to
 */
function useRunner(detail, submit, onInput) {
  const { account } = useSession();
  const [run, setRun] = useState(/** @type {RunView | null} */ (null));
  const [sending, setSending] = useState(false);
  const [failure, setFailure] = useState({ error: /** @type {ApiError | null} */ (null), fields: /** @type {Record<string, string>} */ ({}) });
  const following = useRef(/** @type {AbortController | null} */ (null));

  const show = useCallback((/** @type {(view: RunView, signal: AbortSignal) => void} */ feed) => {
    following.current?.abort();
    following.current = new AbortController();
    const view = new RunView();
    setRun(view);
    feed(view, following.current.signal);
  }, []);
  useEffect(() => {
    const id = new URLSearchParams(location.search).get(JOB);
    if (id !== null) {
      show(async (view, signal) => {
        await followJob(view, { account, id, signal });
        if (hasNames(view.job.input) && !signal.aborted) onInput(withoutSecrets(view.job.input, fieldsOf(detail.schema)));
      });
    }
    return () => following.current?.abort();
  }, []);

  const start = async (/** @type {Values} */ values) => {
    const invalid = unparsedErrors(values);
    if (sending || Object.keys(invalid).length > 0) {
      setFailure({ error: null, fields: invalid });
      return;
    }
    setSending(true);
    setFailure({ error: null, fields: {} });
    try {
      const input = await toInput(withoutEmptyFiles(values, fieldsOf(detail.schema)), uploadFile);
      if (detail.run.style === 'cog') {
        show(async (view, signal) => {
          await runDirectly(view, { path: detail.run.path, schema: detail.schema, input, signal });
          if (view.error instanceof ApiError && !signal.aborted) setFailure({ error: null, fields: view.error.fields });
        });
      } else {
        const id = await submit(detail.run, input);
        keepRun(account, id);
        setParameter(JOB, id);
        show((view, signal) => followJob(view, { account, id, signal }));
      }
    } catch (cause) {
      const error = /** @type {ApiError} */ (cause);
      setFailure({ error, fields: error.fields ?? {} });
      focusFirst(fieldsOf(detail.schema).map(({ name }) => name).filter((name) => Object.hasOwn(error.fields ?? {}, name)));
    } finally {
      setSending(false);
    }
  };

  const cancel = () => {
    if (run === null || run.ended) return;
    if (detail.run.style === 'cog') following.current?.abort();
    else if (run.job.id !== undefined) cancelJob(account, run.job.id).catch((error) => showToast(`The run could not be canceled: ${error.message}`, 'bad'));
  };

  return { run, sending, start, cancel, error: failure.error, fieldErrors: failure.fields, clearErrors: () => setFailure({ error: null, fields: {} }) };
}

/** @param {string[]} names */
function focusFirst(names) {
  for (const name of names) {
    const element = document.getElementById(`input-${name}`);
    if (element !== null) {
      element.focus();
      return;
    }
  }
}

/**
 * Ctrl+Enter runs, Escape cancels, wherever the focus is.
 * @param {{onRun: () => void, onCancel: () => void}} actions
 */
function useKeys(actions) {
  const latest = useRef(actions);
  latest.current = actions;
  useEffect(() => {
    const press = (/** @type {KeyboardEvent} */ event) => {
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        latest.current.onRun();
      } else if (event.key === 'Escape' && !event.defaultPrevented) {
        latest.current.onCancel();
      }
    };
    document.addEventListener('keydown', press);
    return () => document.removeEventListener('keydown', press);
  }, []);
}
