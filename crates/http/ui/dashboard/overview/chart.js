// A chart of the last 15 minutes, drawn by uPlot. The legend shows the last values, or those under the
// pointer; the style sheet sets the colours, and the canvas uses what it computes for the legend.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from '../../lib/html.js';
import uPlot from '../../vendor/uPlot.js';
import { isolated, summary, top } from '../series.js';
import { time } from '../../lib/format.js';

/**
 * A line of the chart. `tone` names its colour, `fill` draws the area below it.
 * @typedef {{label: string, tone: 'one' | 'two' | 'three' | 'bad', fill?: boolean}} Line
 */

const HEIGHT = 192;
/** The seconds between two labels of the time axis. uPlot's own steps leave five minutes with one label. */
const STEPS = [5, 10, 15, 30, 60, 120, 180, 300];

/**
 * @param {object} props
 * @param {string} props.title
 * @param {Line[]} props.lines
 * @param {import('../series.js').Columns} props.data
 * @param {[number, number]} props.span the range of the time axis
 * @param {number} props.least the smallest upper end of the value axis
 * @param {(value: number | null) => string} props.format
 * @param {string} props.emptyText shown if there is no value
 */
export function Chart({ title, lines, data, span, least, format, emptyText }) {
  const canvas = useRef(/** @type {HTMLElement | null} */ (null));
  const legend = useRef(/** @type {HTMLElement | null} */ (null));
  const plot = useRef(/** @type {uPlot | null} */ (null));
  const view = useRef({ span, top: 1 });
  const [at, setAt] = useState(/** @type {number | null} */ (null));
  const theme = useThemeChanges();
  view.current = { span, top: top(data, least) };

  useLayoutEffect(() => {
    const place = canvas.current;
    if (place === null || legend.current === null) return undefined;
    const options = chartOptions(place, legend.current, lines, format, view, setAt);
    const created = new uPlot(options, /** @type {uPlot.AlignedData} */ (/** @type {unknown} */ (data)), place);
    plot.current = created;
    const resizing = new ResizeObserver(() => created.setSize({ width: place.clientWidth, height: HEIGHT }));
    resizing.observe(place);
    return () => {
      resizing.disconnect();
      created.destroy();
    };
  }, [theme]);

  useEffect(() => plot.current?.setData(/** @type {uPlot.AlignedData} */ (/** @type {unknown} */ (data))), [data]);

  const row = at ?? data[0].length - 1;
  const text = useMemo(() => summary(title, lines, data, format), [data]);
  const isEmpty = data.slice(1).every((column) => column.every((value) => value == null));
  return html`<figure class="card chart">
    <figcaption class="chart-head">
      <h2>${title}</h2>
      <span class="muted chart-time">${at === null ? '' : time((data[0][at] ?? 0) * 1000)}</span>
      <ul class="legend" ref=${legend}>${lines.map((line, i) => html`<li key=${line.label}><span class="legend-key tone-${line.tone}" aria-hidden="true"></span>${line.label} <b class="number">${format(data[i + 1][row] ?? null)}</b></li>`)}</ul>
    </figcaption>
    <div class="chart-canvas" ref=${canvas} role="img" aria-label=${text}></div>
    ${isEmpty ? html`<p class="chart-empty muted">${emptyText}</p>` : null}
  </figure>`;
}

/**
 * @param {HTMLElement} place
 * @param {HTMLElement} legend
 * @param {Line[]} lines
 * @param {(value: number | null) => string} format
 * @param {{current: {span: [number, number], top: number}}} view
 * @param {(index: number | null) => void} onPointer
 * @returns {uPlot.Options}
 */
function chartOptions(place, legend, lines, format, view, onPointer) {
  const style = getComputedStyle(place);
  const axis = { stroke: style.color, font: `11px ${style.fontFamily}`, ticks: { show: false } };
  const grid = { stroke: style.borderTopColor, width: 1 };
  const colours = [...legend.querySelectorAll('.legend-key')].map((key) => getComputedStyle(key).color);
  return {
    width: place.clientWidth,
    height: HEIGHT,
    padding: [8, 20, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    scales: {
      x: { time: true, range: () => view.current.span },
      y: { range: () => [0, view.current.top] },
    },
    axes: [
      { ...axis, grid: { show: false }, space: 64, size: 28, incrs: STEPS, values: (_, splits, _axis, _space, step) => splits.map((at) => clock(at, step)) },
      { ...axis, grid, space: 28, size: 64, gap: 8, values: (_, splits) => splits.map((value) => format(value)) },
    ],
    series: [
      {},
      ...lines.map((line, i) => ({
        label: line.label,
        stroke: colours[i],
        width: 1.75,
        points: { show: true, size: 5, fill: colours[i], filter: (/** @type {uPlot} */ chart, /** @type {number} */ at) => isolated(chart.data[at]) },
        fill: line.fill ? translucent(colours[i]) : undefined,
      })),
    ],
    hooks: { setCursor: [(/** @type {uPlot} */ chart) => onPointer(chart.cursor.idx ?? null)] },
  };
}

/**
 * A number that changes with the colours of the page: the theme of the system, or the user's choice.
 * @returns {number}
 */
function useThemeChanges() {
  const [changes, setChanges] = useState(0);
  useEffect(() => {
    const changed = () => setChanges((value) => value + 1);
    const system = matchMedia('(prefers-color-scheme: dark)');
    const chosen = new MutationObserver(changed);
    system.addEventListener('change', changed);
    chosen.observe(document.documentElement, { attributes: true, attributeFilter: ['data-theme'] });
    return () => {
      system.removeEventListener('change', changed);
      chosen.disconnect();
    };
  }, []);
  return changes;
}

/**
 * A computed colour with little opacity.
 * @param {string} colour `rgb(…)`
 */
function translucent(colour) {
  return colour.replace(/^rgb\((.*)\)$/, 'rgba($1, 0.12)');
}

/**
 * The label of a time, with seconds if labels are less than a minute apart.
 * @param {number} seconds since 1970
 * @param {number} step seconds between two labels
 */
function clock(seconds, step) {
  const date = new Date(seconds * 1000);
  const parts = [date.getHours(), date.getMinutes(), ...(step < 60 ? [date.getSeconds()] : [])];
  return parts.map((part) => String(part).padStart(2, '0')).join(':');
}
