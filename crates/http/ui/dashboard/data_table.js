// A table that becomes a list of cards at phone width.
//
// The roles repeat what the elements mean: browsers drop the meaning of table elements whose `display`
// the style sheet changes.

import { html } from '../lib/html.js';

/**
 * @template T
 * @typedef {object} Column
 * @property {string} id
 * @property {any} label text, or an element (the box that selects all rows)
 * @property {string} [name] the label of a card's line; `label` if absent
 * @property {boolean} [number] aligned right
 * @property {string} [class]
 * @property {(row: T) => any} cell
 */

/**
 * @template T
 * @param {object} props
 * @param {string} props.label names the table for screen readers
 * @param {Column<T>[]} props.columns the first one is the title of a card
 * @param {T[]} props.rows
 * @param {(row: T) => string} props.keyOf
 * @param {(row: T) => any} [props.detailOf] what is shown below a row across all columns; null for nothing
 * @param {(row: T) => string} [props.classOf]
 * @param {Record<string, any>} [props.bodyProps] properties of the element with the rows
 */
export function DataTable({ label, columns, rows, keyOf, detailOf, classOf, bodyProps = {} }) {
  return html`<div class="table-wrap data-table" role="group" aria-label=${label} tabindex="0">
    <table role="table" aria-label=${label}>
      <thead role="rowgroup"><tr role="row">${columns.map((column) => html`<th key=${column.id} role="columnheader" scope="col" class=${classes(column)}>${column.label}</th>`)}</tr></thead>
      <tbody role="rowgroup" ...${bodyProps}>${rows.map((row) => html`<${Row} key=${keyOf(row)} row=${row} columns=${columns} detail=${detailOf?.(row)} class=${classOf?.(row)} />`)}</tbody>
    </table>
  </div>`;
}

/**
 * @template T
 * @param {{row: T, columns: Column<T>[], detail?: any, class?: string}} props
 */
function Row({ row, columns, detail, class: className }) {
  const cells = columns.map((column) => {
    const name = column.name ?? (typeof column.label === 'string' ? column.label : '');
    return html`<td key=${column.id} role="cell" class=${classes(column)} data-name=${name}>${column.cell(row)}</td>`;
  });
  return html`<tr role="row" class=${className}>${cells}</tr>
    ${detail ? html`<tr role="row" class="detail-row"><td role="cell" colspan=${columns.length}>${detail}</td></tr>` : null}`;
}

/**
 * @param {{number?: boolean, class?: string}} column
 */
function classes(column) {
  return [column.number ? 'number' : '', column.class ?? ''].join(' ').trim() || null;
}
