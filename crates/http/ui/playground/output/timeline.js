// How long the job waited for a slot, waited for the model to load, and ran.

import { html, useEffect, useState } from '../../lib/html.js';
import { duration, time } from '../../lib/format.js';

/** @typedef {import('../../lib/types.d.ts').Job} Job */

/** @typedef {{id: string, label: string, seconds: number}} Phase */

/**
 * The phases of a job up to now.
 * @param {Partial<Job>} job
 * @param {number} now milliseconds
 * @param {number | null} [loading] since when the model loads, in milliseconds
 * @returns {Phase[]}
 */
export function phasesOf(job, now, loading = null) {
  const created = Date.parse(job.created_at ?? '');
  const started = Date.parse(job.started_at ?? '');
  const end = Number.isNaN(Date.parse(job.completed_at ?? '')) ? now : Date.parse(job.completed_at ?? '');
  const between = (/** @type {number} */ from, /** @type {number} */ to) => (Number.isNaN(from) || Number.isNaN(to) ? 0 : Math.max(0, to - from) / 1000);
  const isStarted = !Number.isNaN(started);
  const isOver = isStarted || job.completed_at != null;
  // The document has the time of a load when it is over.
  const loaded = job.loaded_s ?? (isOver || loading === null ? 0 : between(Math.max(created, loading), end));
  // While the job runs, the document's duration is that of the moment it was written.
  const ran = job.completed_at != null && job.ran_s != null ? job.ran_s : isStarted ? between(started, end) : job.ran_s ?? 0;
  // The same holds for a job that waits.
  const waited = (isOver ? job.waited_s : null) ?? Math.max(0, between(created, isStarted ? started : end) - loaded);
  const phases = [
    { id: 'waited', label: 'waited', seconds: waited },
    { id: 'loaded', label: 'loaded', seconds: loaded },
    { id: 'ran', label: 'ran', seconds: ran },
  ];
  return phases.filter(({ id, seconds }) => seconds > 0 || (id === 'ran' && isStarted));
}

/**
 * @param {{job: Partial<Job>, running: boolean, loading: number | null}} props
 */
export function Timeline({ job, running, loading }) {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (!running) return undefined;
    const timer = setInterval(() => setNow(Date.now()), 250);
    return () => clearInterval(timer);
  }, [running]);
  if (job.created_at === undefined) return null;
  const phases = phasesOf(job, now, loading);
  const total = phases.reduce((sum, { seconds }) => sum + seconds, 0);
  return html`<div class="timeline">
    <div class="timeline-bar" aria-hidden="true">${phases.map(({ id, seconds }) => html`<span key=${id} class="phase-${id}" style=${{ flexGrow: String(total === 0 ? 1 : Math.max(seconds / total, 0.01)) }}></span>`)}</div>
    <ul class="timeline-legend">${phases.map(({ id, label, seconds }) => html`<li key=${id}><span class="key phase-${id}" aria-hidden="true"></span>${label} <b class="number">${duration(seconds)}</b></li>`)}
      <li class="muted">created ${time(job.created_at)}</li></ul>
  </div>`;
}
