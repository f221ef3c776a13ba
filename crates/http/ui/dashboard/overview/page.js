// The overview: what the server does now and did in the last 15 minutes.

import { html, useEffect, useState } from '../../lib/html.js';
import { ago } from '../../lib/format.js';
import { useSession } from '../../lib/session.js';
import { useLiveState, useSections } from '../../lib/store.js';
import { ErrorNote, Skeleton } from '../../components/notes.js';
import { Directors, Replicas } from './cluster.js';
import { Endpoints } from './endpoints.js';
import { Gpus } from './gpus.js';
import { History } from './history.js';
import { Models } from './models.js';
import { Queues } from './queues.js';
import { Router } from './router.js';
import { Tiles } from './tiles.js';

export function OverviewPage() {
  const { server } = useSession();
  const { ready } = useLiveState();
  const sections = useSections('overview', 'history');
  return html`<div class="page-head"><h1>Overview</h1><span class="muted">tidegate ${server.command} ${server.version}, started ${ago(server.started_at)}</span></div>
    ${ready ? null : html`<${Unavailable} />`}
    <div class="panels">
      ${sections.overview ? html`<${Tiles} totals=${sections.overview} />` : null}
      ${sections.history ? html`<${History} history=${sections.history} />` : null}
      ${ready ? html`<${LivePanels} />` : html`<${Skeleton} lines=${6} />`}
    </div>`;
}

/** The panels of the sections that this server has. Endpoints have a panel of their own, beside the models. */
function LivePanels() {
  const { command } = useSession().server;
  const { models, children, gpus, queues, endpoints, directors, replicas, router } = useSections('models', 'children', 'gpus', 'queues', 'endpoints', 'directors', 'replicas', 'router');
  const others = models?.filter((model) => model.kind === 'model' || model.kind === 'trained');
  const isPlatform = command === 'platform';
  return html`
    ${others && !router && (others.length > 0 || !isPlatform) ? html`<${Models} models=${others} processes=${children} />` : null}
    ${gpus ? html`<${Gpus} gpus=${gpus} />` : null}
    ${endpoints && (endpoints.length > 0 || isPlatform) ? html`<${Endpoints} endpoints=${endpoints} />` : null}
    ${queues ? html`<${Queues} queues=${queues} />` : null}
    ${directors ? html`<${Directors} directors=${directors} />` : null}
    ${replicas ? html`<${Replicas} replicas=${replicas} />` : null}
    ${router ? html`<${Router} models=${router.models} />` : null}`;
}

/** How long the first data may take before the page says that it is missing. */
const LATE_MS = 4000;

/** Shown if the first data does not arrive. */
function Unavailable() {
  const [late, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), LATE_MS);
    return () => clearTimeout(timer);
  }, []);
  return late ? html`<${ErrorNote} title="No live data" error="The server does not answer. The page tries again by itself." onRetry=${() => location.reload()} />` : null;
}
