// The list of the server's models, with search.

import { html, useState } from '../lib/html.js';
import { count } from '../lib/format.js';
import { Link, pageUrl } from '../lib/router.js';
import { Badge } from '../components/badge.js';
import { CodeBlock } from '../components/code_block.js';
import { Empty } from '../components/notes.js';
import { Icon } from '../components/icon.js';
import { addEndpoint, workerEnvironment } from './commands.js';
import { stateLine } from './state_line.js';

/** @typedef {import('../lib/types.d.ts').ModelSummary} ModelSummary */

/**
 * The URL of a model's page.
 * @param {{kind: string, name: string}} model
 */
export function modelUrl({ kind, name }) {
  return pageUrl(kind === 'endpoint' ? 'endpoints' : 'models', name);
}

/**
 * The models whose name or description contains every word.
 * @param {ModelSummary[]} models
 * @param {string} query
 */
export function matching(models, query) {
  const words = query.toLowerCase().split(/\s+/).filter((word) => word !== '');
  return models.filter(({ name, description }) => words.every((word) => `${name} ${description ?? ''}`.toLowerCase().includes(word)));
}

/**
 * @param {{models: ModelSummary[]}} props
 */
export function ModelList({ models }) {
  const [query, setQuery] = useState('');
  const found = matching(models, query);
  return html`<div class="page-head">
      <h1>Models</h1><span class="muted">${count(models.length, 'model')}</span>
      <div class="search end"><${Icon} name="search" /><input type="search" aria-label="Search models" placeholder="Search models" value=${query} onInput=${(/** @type {InputEvent} */ event) => setQuery(/** @type {HTMLInputElement} */ (event.target).value)} /></div>
    </div>
    ${found.length === 0
      ? html`<${Empty} icon="search" title="No model matches “${query}”"><button type="button" class="button" onClick=${() => setQuery('')}>Show all models</button></${Empty}>`
      : html`<ul class="model-grid">${found.map((model) => html`<${ModelCard} key=${`${model.kind} ${model.name}`} model=${model} />`)}</ul>`}`;
}

/**
 * @param {{model: ModelSummary}} props
 */
function ModelCard({ model }) {
  const { badge, text } = stateLine(model.state, Date.now());
  const words = model.description ?? (model.state.health.toUpperCase() === 'READY' ? '' : text);
  return html`<li><${Link} to=${modelUrl(model)} class="card model-card">
    <span class="model-name">${model.name}</span>
    ${words === '' ? null : html`<span class="model-text">${words}</span>`}
    <span class="row"><${Badge} state=${model.state.health} text=${badge} />${model.chat ? html`<span class="tag">chat</span>` : null}${model.kind === 'endpoint' ? html`<span class="tag">endpoint</span>` : null}${model.kind === 'trained' ? html`<span class="tag">trained</span>` : null}${model.trainable ? html`<span class="tag">trainable</span>` : null}</span>
  </${Link}></li>`;
}

/** What to do on a server without models, by its command. @type {Record<string, {text: string, command: string}>} */
const COMMANDS = {
  serve: { text: 'Create a model and serve it:', command: 'tidegate init my-model\ntidegate serve my-model' },
  platform: { text: 'Add an endpoint, and print the environment of its workers:', command: `${addEndpoint('my-endpoint')}\n${workerEnvironment('my-endpoint')}` },
  api: { text: 'Start a director, which runs the models of this server:', command: 'tidegate director my-model' },
  router: { text: 'Start the router with a backend that serves models:', command: 'tidegate router --backend http://127.0.0.1:8000' },
};

/**
 * What the first page shows on a server without models.
 * @param {{command: string}} props
 */
export function NoModels({ command }) {
  const { text, command: lines } = COMMANDS[command] ?? COMMANDS.serve;
  return html`<div class="narrow-box"><${Empty} title="This server has no models">${text}</${Empty}><${CodeBlock} label="command" text=${lines} /></div>`;
}
