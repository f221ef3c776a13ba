// The first page and the page of one model.

import { html, useEffect, useRef } from '../lib/html.js';
import { useSession } from '../lib/session.js';
import { useSections } from '../lib/store.js';
import { useRequest } from '../lib/use_request.js';
import { ErrorNote, Skeleton } from '../components/notes.js';
import { ModelList, NoModels } from './model_list.js';
import { Playground } from './playground.js';

/** @typedef {import('../lib/router.js').Route} Route */
/** @typedef {import('../lib/types.d.ts').ModelSummary} ModelSummary */

/**
 * The playground of the only model, the list of several, or how to get one.
 * @param {{route: Route}} props
 */
export function HomePage({ route }) {
  const session = useSession();
  const { data, error, reload } = useRequest('ui/api/models');
  const { models: live } = useSections('models');
  /** @type {ModelSummary[] | null} */
  const models = live ?? data?.models ?? null;
  if (models === null) return error === null ? html`<${Skeleton} lines=${6} />` : html`<${ErrorNote} title="The models could not be read" error=${error} onRetry=${reload} />`;
  if (models.length === 0) return html`<${NoModels} command=${session.server.command} />`;
  if (models.length === 1 && route.page === '') return html`<${OneModel} kind=${models[0].kind} name=${models[0].name} />`;
  return html`<${ModelList} models=${models} />`;
}

/**
 * @param {{route: Route}} props
 */
export function ModelPage({ route }) {
  return html`<${OneModel} kind=${route.page === 'endpoints' ? 'endpoint' : 'model'} name=${route.params.join('/')} />`;
}

/**
 * @param {{kind: string, name: string}} props
 */
function OneModel({ kind, name }) {
  const isEndpoint = kind === 'endpoint';
  const path = name.split('/').map(encodeURIComponent).join('/');
  const { data, error, reload } = useRequest(`ui/api/${isEndpoint ? 'endpoints' : 'models'}/${path}`);
  const { models } = useSections('models');
  const live = models?.find((model) => model.name === name && (model.kind === 'endpoint') === isEndpoint);
  const state = live?.state ?? data?.state;
  const seenHealth = useRef(/** @type {string | null} */ (null));
  useEffect(() => {
    if (data === null || live === undefined) return;
    const due = reloadIsDue({ seen: seenHealth.current, live: live.state.health, loaded: data.state.health });
    seenHealth.current = live.state.health;
    if (due) reload();
  }, [live?.state.health, data]);
  useEffect(() => {
    document.title = `${name} · tidegate`;
  }, [name]);
  if (data === null) return error === null ? html`<${Skeleton} lines=${6} />` : html`<${ErrorNote} title="The model could not be read" error=${error} onRetry=${reload} />`;
  return html`<${Playground} detail=${data} state=${state} />`;
}

/**
 * Whether the document of a model must be read again: the schema, the versions and the setup logs may be
 * other ones after the live health changed. Once per change, because the live section may be older than the
 * document and differ from it for long.
 * @param {{seen: string | null, live: string, loaded: string}} health `seen`: the live health at the last call
 */
export function reloadIsDue({ seen, live, loaded }) {
  return seen === null ? live !== loaded : live !== seen;
}
