// Trainings: the form of a model's training function, and the model that gets the trained version.

import { html } from '../lib/html.js';
import { requestJson } from '../lib/api.js';
import { Link, pageUrl } from '../lib/router.js';
import { useRequest } from '../lib/use_request.js';
import { submitJob } from './start_run.js';

/** @typedef {import('../lib/types.d.ts').ModelDetail} ModelDetail */

/** The parameter of the URL that shows the form of the training, and its value. */
export const TASK = 'task';
export const TRAIN = 'train';

/** What a model that is created for trained versions has besides its name. */
export const NEW_MODEL = { visibility: 'private', hardware: 'local' };

/**
 * The model with the inputs and the output of its training in place of those of a prediction.
 * @param {ModelDetail} detail
 * @param {string} destination
 * @returns {ModelDetail}
 */
export function trainingOf(detail, destination) {
  const schemas = detail.schema?.components?.schemas ?? {};
  const { TrainingInput: Input = {}, TrainingOutput: Output = {} } = schemas;
  const schema = detail.schema === null ? null : { ...detail.schema, components: { ...detail.schema.components, schemas: { ...schemas, Input, Output } } };
  return { ...detail, schema, example: {}, chat: false, run: { style: 'replicate', path: `v1/models/${detail.name}/versions/${detail.version}/trainings`, fields: { destination } } };
}

/**
 * The destination that the form proposes: a model of the account.
 * @param {string} account
 * @param {string} model
 */
export function proposedDestination(account, model) {
  return `${account === '~' ? 'anonymous' : account}/${model.split('/').at(-1)}-trained`;
}

/**
 * Starts a training and returns its id. Creates the destination if the account has no such model.
 * @param {ModelDetail['run']} run
 * @param {Record<string, unknown>} input
 * @returns {Promise<string>}
 */
export async function submitTraining(run, input) {
  const destination = run.fields?.destination ?? '';
  const [owner, name = ''] = destination.split('/');
  const { results } = await requestJson('v1/models');
  const isKnown = results.some((/** @type {any} */ model) => `${model.owner}/${model.name}` === destination);
  if (!isKnown) {
    const model = { owner, name, ...NEW_MODEL };
    await requestJson('v1/models', { method: 'POST', json: model }).catch((/** @type {import('../lib/api.js').ApiError} */ error) => {
      // The list has only the first models, so it may exist.
      if (error.status !== 409) throw error;
    });
  }
  return submitJob(run, input);
}

/**
 * @param {{value: string, onChange: (value: string) => void}} props
 */
export function DestinationField({ value, onChange }) {
  const { data } = useRequest('v1/models');
  /** @type {{owner: string, name: string}[]} */
  const models = data?.results ?? [];
  return html`<div class="field">
    <div class="field-head"><label for="training-destination" class="field-label">Destination</label><span class="field-type">model</span></div>
    <input id="training-destination" type="text" list="training-models" value=${value} aria-describedby="training-destination-hint" onInput=${(/** @type {InputEvent} */ event) => onChange(/** @type {HTMLInputElement} */ (event.target).value.trim())} />
    <datalist id="training-models">${models.map(({ owner, name }) => html`<option key=${`${owner}/${name}`} value="${owner}/${name}"></option>`)}</datalist>
    <p class="hint" id="training-destination-hint">The model that gets the trained version, as OWNER/NAME. It is created if it does not exist.</p>
  </div>`;
}

/**
 * The model that a training has created a version of.
 * @param {{output: any}} props
 */
export function TrainedVersion({ output }) {
  const version = output?.version;
  const match = typeof version === 'string' ? /^([^/:]+\/[^/:]+):[0-9a-f]+$/.exec(version) : null;
  if (match === null) return null;
  return html`<div class="note"><div class="note-text">The training created a version of <${Link} to=${pageUrl('models', match[1])}>${match[1]}</${Link}>, which you can run.</div></div>`;
}
