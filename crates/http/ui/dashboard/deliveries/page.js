// The webhook messages of the server, with the attempts to deliver them.

import { requestJson } from '../../lib/api.js';
import { html, useState } from '../../lib/html.js';
import { ago, count, duration, time } from '../../lib/format.js';
import { Link, navigate, pageUrl } from '../../lib/router.js';
import { useSession } from '../../lib/session.js';
import { Badge } from '../../components/badge.js';
import { Empty, ErrorNote, Skeleton } from '../../components/notes.js';
import { showToast } from '../../components/toast.js';
import { DataTable } from '../data_table.js';
import { DisclosureButton, useOpenRows } from '../disclosure.js';
import { jobUrl } from '../jobs/job_table.js';
import { useLongList } from '../panel.js';
import { usePolling } from '../../lib/poll.js';
import { attemptCount, canReplay, lastResult } from './delivery.js';

/** @typedef {import('./delivery.js').Delivery} Delivery */
/** @typedef {import('./delivery.js').Attempt} Attempt */

const REFRESH_MS = 3000;

/**
 * @param {{route: import('../../lib/router.js').Route}} props
 */
export function DeliveriesPage({ route }) {
  const job = route.query.get('job');
  const [list, setList] = useState(/** @type {Delivery[] | null} */ (null));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const refresh = () => requestJson(`admin/deliveries${job ? `?${new URLSearchParams({ job })}` : ''}`).then(
    (answer) => { setList(answer.deliveries); setError(null); },
    setError,
  );
  usePolling(refresh, REFRESH_MS, [job]);
  return html`<div class="page-head"><h1>Webhooks</h1>${list ? html`<span class="muted">${count(list.length, 'message')}</span>` : null}</div>
    <div class="stack">
      ${job ? html`<div class="row"><span>Only messages of job</span><code class="break">${job}</code><button type="button" class="button small" onClick=${() => navigate(pageUrl('deliveries'))}>Show all</button></div>` : null}
      ${error ? html`<${ErrorNote} title="The messages could not be read" error=${error} onRetry=${refresh} />` : null}
      ${list === null ? (error ? null : html`<${Skeleton} lines=${6} />`) : html`<${DeliveryTable} list=${list} onReplayed=${refresh} />`}
    </div>`;
}

/**
 * @param {{list: Delivery[], onReplayed: () => void}} props
 */
function DeliveryTable({ list, onReplayed }) {
  const session = useSession();
  const [isOpen, toggle] = useOpenRows();
  const { shown, search, more } = useLongList(list, (message) => `${message.job} ${message.host} ${message.state} ${message.event} ${message.model ?? ''} ${message.account ?? ''}`, 'Search by job, host, state, event or model');
  const showAccounts = session.tokens && session.role === 'admin';
  const columns = [
    { id: 'event', label: 'Message', class: 'cell-title cell-message', cell: (/** @type {Delivery} */ message) => html`<span class="with-disclosure"><${DisclosureButton} open=${isOpen(message.id)} onToggle=${() => toggle(message.id)} label="Attempts of message ${message.id}" /><span class="two-lines"><span>${message.event}</span><code class="muted cut" title=${message.id}>${message.id}</code></span></span>` },
    { id: 'state', label: 'State', cell: (/** @type {Delivery} */ message) => html`<${Badge} state=${message.state} tone=${message.state === 'sending' ? 'busy' : undefined} />` },
    { id: 'host', label: 'Receiver', class: 'cell-model', cell: (/** @type {Delivery} */ message) => html`<span class="break">${message.host}</span>` },
    { id: 'job', label: 'Job', class: 'cell-model', cell: (/** @type {Delivery} */ message) => html`<span class="two-lines"><${Link} class="job-id" to=${jobUrl(message.job, message.account ?? '~', session.account)}><code>${message.job}</code></${Link}>${message.model ? html`<span class="muted cut-lines" title=${message.model}>${message.model}</span>` : null}</span>` },
    ...(showAccounts ? [{ id: 'account', label: 'Account', class: 'cell-account', cell: (/** @type {Delivery} */ message) => html`<span class="cut" title=${message.account}>${message.account ?? 'anonymous'}</span>` }] : []),
    { id: 'created', label: 'Created', cell: (/** @type {Delivery} */ message) => html`<time datetime=${message.created_at} title=${time(message.created_at)}>${ago(message.created_at)}</time>` },
    { id: 'attempts', label: 'Attempts', number: true, cell: (/** @type {Delivery} */ message) => attemptCount(message) },
    { id: 'last', label: 'Last result', class: 'cell-error', cell: (/** @type {Delivery} */ message) => html`<span class="cut-lines ${message.state === 'failed' ? 'bad-text' : ''}">${lastResult(message)}</span>` },
    { id: 'replay', label: html`<span class="visually-hidden">Actions</span>`, cell: (/** @type {Delivery} */ message) => html`<${ReplayButton} message=${message} onReplayed=${onReplayed} />` },
  ];
  if (list.length === 0) return html`<div class="card"><${Empty} icon="send" title="No webhooks yet">A job with a <code>webhook</code> URL sends its state there. The messages and the receiver's answers appear here.</${Empty}></div>`;
  return html`${search}
    <${DataTable} label="Webhook messages" columns=${columns} rows=${shown} keyOf=${(/** @type {Delivery} */ message) => message.id} detailOf=${(/** @type {Delivery} */ message) => isOpen(message.id) && html`<${Attempts} message=${message} />`} />
    ${more}`;
}

/**
 * @param {{message: Delivery, onReplayed: () => void}} props
 */
function ReplayButton({ message, onReplayed }) {
  const [working, setWorking] = useState(false);
  if (!canReplay(message)) return null;
  const replay = async () => {
    setWorking(true);
    try {
      await requestJson(`admin/deliveries/${encodeURIComponent(message.id)}/replay`, { method: 'POST' });
      showToast('The message is sent again.', 'good');
      onReplayed();
    } catch (error) {
      showToast(`The message was not sent: ${/** @type {Error} */ (error).message}`, 'bad');
    }
    setWorking(false);
  };
  return html`<button type="button" class="button small" disabled=${working} onClick=${replay} aria-label="Replay message ${message.id}">Replay</button>`;
}

/**
 * @param {{message: Delivery}} props
 */
function Attempts({ message }) {
  const columns = [
    { id: 'at', label: 'Sent', class: 'cell-title', cell: (/** @type {Attempt} */ attempt) => html`<time datetime=${attempt.at}>${time(attempt.at)}</time>` },
    { id: 'took', label: 'Took', number: true, cell: (/** @type {Attempt} */ attempt) => duration(attempt.took_s) },
    { id: 'result', label: 'Answer', class: 'cell-wide', cell: (/** @type {Attempt} */ attempt) => html`<span class="break">${attempt.status === undefined ? attempt.error : `status ${attempt.status}`}</span>` },
  ];
  const earlier = message.earlier_attempts ?? 0;
  return html`<div class="detail">
    ${message.given_up ? html`<p class="bad-text">Given up: ${message.given_up}</p>` : null}
    ${message.next_attempt_at ? html`<p>Next attempt at ${time(message.next_attempt_at)}.</p>` : null}
    ${message.attempts.length === 0 ? html`<p class="muted">No attempt of this server yet.</p>` : html`<${DataTable} label="Attempts" columns=${columns} rows=${message.attempts} keyOf=${(/** @type {Attempt} */ attempt) => attempt.at} />`}
    ${earlier > 0 ? html`<p class="muted">${count(earlier, 'attempt')} of an earlier server; the answers are not kept.</p>` : null}
  </div>`;
}
