// The bar with the bulk actions on the selected jobs, and the question before each.

import { html, useState } from '../../lib/html.js';
import { count } from '../../lib/format.js';
import { ConfirmDialog } from '../confirm_dialog.js';
import { applicable } from './bulk.js';

/** @typedef {import('./bulk.js').Action} Action */
/** @typedef {import('./rows.js').JobRow} JobRow */

/**
 * @param {object} props
 * @param {JobRow[]} props.jobs the selected jobs
 * @param {boolean} props.working whether an action runs
 * @param {string} props.summary the result of the last action
 * @param {(action: Action, jobs: JobRow[]) => void} props.onAction
 * @param {() => void} props.onClear
 */
export function BulkBar({ jobs, working, summary, onAction, onClear }) {
  const [asked, setAsked] = useState(/** @type {Action | null} */ (null));
  const cancelable = applicable('cancel', jobs);
  const repeatable = applicable('rerun', jobs);
  const confirm = () => {
    if (asked !== null) onAction(asked, asked === 'cancel' ? cancelable : repeatable);
    setAsked(null);
  };
  return html`<div class="bulk-bar ${jobs.length > 0 ? 'active' : ''}">
    <span class="bulk-text" role="status">${jobs.length > 0 ? `${count(jobs.length, 'job')} selected. ` : ''}${summary}</span>
    ${jobs.length === 0 ? null : html`
      <button type="button" class="button small danger" disabled=${working || cancelable.length === 0} onClick=${() => setAsked('cancel')}>Cancel${cancelable.length > 0 ? ` ${count(cancelable.length, 'job')}` : ''}</button>
      <button type="button" class="button small" disabled=${working || repeatable.length === 0} onClick=${() => setAsked('rerun')}>${repeatable.length > 0 ? `Run ${count(repeatable.length, 'job')} again` : 'Run again'}</button>
      <button type="button" class="button small quiet" onClick=${onClear}>Clear selection</button>`}
    ${asked === null ? null : html`<${Question} action=${asked} selected=${jobs.length} affected=${(asked === 'cancel' ? cancelable : repeatable).length} onConfirm=${confirm} onClose=${() => setAsked(null)} />`}
  </div>`;
}

/**
 * @param {{action: Action, selected: number, affected: number, onConfirm: () => void, onClose: () => void}} props
 */
function Question({ action, selected, affected, onConfirm, onClose }) {
  const jobs = count(affected, 'job');
  const others = selected - affected;
  if (action === 'cancel') {
    return html`<${ConfirmDialog} title="Cancel ${jobs}?" action="Cancel ${jobs}" danger onConfirm=${onConfirm} onClose=${onClose}>
      <p>Jobs that run are stopped and their output is lost.</p>${others > 0 ? html`<p class="muted">${count(others, 'selected job')} ${others === 1 ? 'has' : 'have'} ended and ${others === 1 ? 'stays' : 'stay'} as ${others === 1 ? 'it is' : 'they are'}.</p>` : null}
    </${ConfirmDialog}>`;
  }
  return html`<${ConfirmDialog} title="Run ${jobs} again?" action="Run ${jobs} again" onConfirm=${onConfirm} onClose=${onClose}>
    <p>Each input is submitted as a new job with a new id, under your account. Webhooks of the old jobs are not repeated.</p>${others > 0 ? html`<p class="muted">${count(others, 'selected training')} cannot be repeated here.</p>` : null}
  </${ConfirmDialog}>`;
}
