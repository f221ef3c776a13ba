// The charts of the overview.

import { html, useMemo } from '../../lib/html.js';
import { number } from '../../lib/format.js';
import { useSession } from '../../lib/session.js';
import { latency, rate } from '../format.js';
import { columns, span } from '../series.js';
import { Chart } from './chart.js';
import { measuredTime } from './tiles.js';

/**
 * @param {{history: import('../series.js').History}} props
 */
export function History({ history }) {
  const { command } = useSession().server;
  const { name, hint } = measuredTime(command);
  const { range, requests, latencies, load } = useMemo(() => ({
    range: span(history),
    requests: columns(history, ['requests', 'errors'], 'per_second'),
    latencies: columns(history, ['p50', 'p95', 'p99']),
    load: columns(history, ['waiting', 'in_flight']),
  }), [history]);
  return html`<div class="charts">
    <${Chart} title="Requests per second" span=${range} data=${requests} least=${1} format=${rate} emptyText="No requests yet"
      lines=${[{ label: 'requests', tone: 'one', fill: true }, { label: 'errors', tone: 'bad', fill: true }]} />
    <${Chart} title=${`${name}, ${hint}`} span=${range} data=${latencies} least=${0.001} format=${latency} emptyText=${command === 'router' ? 'No request has ended in the last 15 minutes' : 'No job has ended in the last 15 minutes'}
      lines=${[{ label: 'p50', tone: 'one' }, { label: 'p95', tone: 'two' }, { label: 'p99', tone: 'three' }]} />
    <${Chart} title="Load" span=${range} data=${load} least=${4} format=${number} emptyText="No requests yet"
      lines=${[{ label: 'waiting', tone: 'two', fill: true }, { label: 'in flight', tone: 'one' }]} />
  </div>`;
}
