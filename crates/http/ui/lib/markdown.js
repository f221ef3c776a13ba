// A small part of Markdown as a tree of elements: no raw HTML, no images, links to http and https only.
// What it does not know stays text.

import { h } from './html.js';

/** @typedef {{tag: string, props?: Record<string, string>, children: (Node | string)[]}} Node */

/**
 * Parses a text. The result has only the tags that this module names.
 * @param {string} text
 * @returns {Node[]}
 */
export function parseMarkdown(text) {
  return blocks(text.replace(/\r\n?/g, '\n').split('\n'), 0);
}

const MOST_DEPTH = 6;
// The text is hostile, so every pattern takes linear time: no two repetitions in a row match the same
// characters, unless what follows them always matches (`s` lets `.` match U+2028 too).
const FENCE = /^ {0,3}(`{3,}|~{3,}(?!~))[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})\s(.*)$/s;
const BULLET = /^( {0,3})([-*+])\s+(.*)$/s;
const NUMBERED = /^( {0,3})(\d{1,9})[.)]\s+(.*)$/s;
const QUOTE = /^ {0,3}> ?(.*)$/s;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const TABLE_RULE_CELL = /^:?-+:?$/;

/**
 * @param {string[]} lines
 * @param {number} depth
 * @returns {Node[]}
 */
function blocks(lines, depth) {
  /** @type {Node[]} */
  const nodes = [];
  let at = 0;
  while (at < lines.length) {
    const block = lines[at].trim() === '' ? null : blockAt(lines, at, depth);
    if (block !== null) nodes.push(block.node);
    at = block?.next ?? at + 1;
  }
  return nodes;
}

/**
 * @param {string[]} lines
 * @param {number} at
 * @param {number} depth
 * @returns {{node: Node, next: number}}
 */
function blockAt(lines, at, depth) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence !== null) return codeBlock(lines, at, fence[1]);
  const heading = HEADING.exec(line);
  // One level lower, because the page has its own first heading.
  if (heading !== null) return { node: { tag: `h${Math.min(heading[1].length + 2, 6)}`, children: inline(headingText(heading[2])) }, next: at + 1 };
  if (RULE.test(line)) return { node: { tag: 'hr', children: [] }, next: at + 1 };
  if (depth < MOST_DEPTH) {
    if (QUOTE.test(line)) return quote(lines, at, depth);
    if (BULLET.test(line)) return list(lines, at, depth, BULLET, 'ul');
    if (NUMBERED.test(line)) return list(lines, at, depth, NUMBERED, 'ol');
  }
  if (line.includes('|') && isTableRule(lines[at + 1] ?? '')) return table(lines, at);
  return paragraph(lines, at);
}

/**
 * The text of a heading, without the marks that close it.
 * @param {string} text
 */
function headingText(text) {
  const trimmed = text.trim();
  let end = trimmed.length;
  while (end > 0 && trimmed[end - 1] === '#') end -= 1;
  return trimmed.slice(0, end).trimEnd();
}

/**
 * Whether a line is the one between the head and the body of a table, which has two columns or more.
 * @param {string} line
 */
function isTableRule(line) {
  const cells = cellsOf(line);
  return cells.length > 1 && cells.every((cell) => TABLE_RULE_CELL.test(cell));
}

/**
 * The cells of a table's line.
 * @param {string} line
 */
function cellsOf(line) {
  return line.trim().replace(/^\||\|$/g, '').split('|').map((cell) => cell.trim());
}

/**
 * @param {string[]} lines
 * @param {number} at
 * @param {string} mark
 */
function codeBlock(lines, at, mark) {
  let end = at + 1;
  while (end < lines.length && !(lines[end].trim().startsWith(mark) && lines[end].trim().replaceAll(mark[0], '') === '')) end += 1;
  const code = { tag: 'code', children: [lines.slice(at + 1, end).join('\n')] };
  return { node: { tag: 'pre', children: [code] }, next: end + 1 };
}

/**
 * @param {string[]} lines
 * @param {number} at
 * @param {number} depth
 */
function quote(lines, at, depth) {
  const inner = [];
  let end = at;
  for (let match; end < lines.length && (match = QUOTE.exec(lines[end])) !== null; end += 1) inner.push(match[1]);
  return { node: { tag: 'blockquote', children: blocks(inner, depth + 1) }, next: end };
}

/**
 * @param {string[]} lines
 * @param {number} at
 * @param {number} depth
 * @param {RegExp} marker
 * @param {'ul' | 'ol'} tag
 * @returns {{node: Node, next: number}}
 */
function list(lines, at, depth, marker, tag) {
  /** @type {Node[]} */
  const items = [];
  let end = at;
  const start = tag === 'ol' ? /** @type {RegExpExecArray} */ (marker.exec(lines[at]))[2] : null;
  for (let match; end < lines.length && (match = marker.exec(lines[end])) !== null;) {
    const inner = [match[3]];
    end += 1;
    // What belongs to the item is indented; an empty line belongs to it if an indented one follows.
    while (end < lines.length && (/^ {2,}\S/.test(lines[end]) || (lines[end].trim() === '' && /^ {2,}\S/.test(lines[end + 1] ?? '')))) {
      inner.push(lines[end].replace(/^ {2,4}/, ''));
      end += 1;
    }
    items.push({ tag: 'li', children: inner.length === 1 ? inline(inner[0]) : blocks(inner, depth + 1) });
  }
  return { node: { tag, props: start === null || start === '1' ? undefined : { start: String(Number(start)) }, children: items }, next: end };
}

/**
 * @param {string[]} lines
 * @param {number} at
 */
function table(lines, at) {
  const row = (/** @type {string} */ line, /** @type {string} */ cell) => ({
    tag: 'tr',
    children: cellsOf(line).map((text) => ({ tag: cell, children: inline(text) })),
  });
  let end = at + 2;
  /** @type {Node[]} */
  const rows = [];
  while (end < lines.length && lines[end].includes('|')) {
    rows.push(row(lines[end], 'td'));
    end += 1;
  }
  return { node: { tag: 'table', children: [{ tag: 'thead', children: [row(lines[at], 'th')] }, { tag: 'tbody', children: rows }] }, next: end };
}

/**
 * @param {string[]} lines
 * @param {number} at
 */
function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() !== '' && ![FENCE, HEADING, BULLET, NUMBERED, QUOTE].some((start) => start.test(lines[end]))) end += 1;
  return { node: { tag: 'p', children: inline(lines.slice(at, end).join('\n')) }, next: end };
}

// Each alternative looks no further than the next character that could start it again, so that all attempts
// together take linear time. For code this needs the lookbehind: it starts with a whole run of backticks.
const INLINE = /(?<!`)(`+)([^`]+)\1(?!`)|\*\*([^*\n]+)\*\*|__([^_\n]+)__|\*([^*\s][^*\n]*)\*|(?<!\w)_([^_\s][^_\n]*)_(?!\w)|~~([^~\n]+)~~|!?\[([^[\]\n]+)\]\(([^()\s]+)\)|(https?:\/\/[^\s<>()[\]"'`]+)|\\([\\`*_{}[\]()#+.!|~-])/g;

/**
 * @param {string} text
 * @returns {(Node | string)[]}
 */
function inline(text) {
  /** @type {(Node | string)[]} */
  const nodes = [];
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > at) nodes.push(text.slice(at, match.index));
    nodes.push(span(match));
    at = match.index + match[0].length;
  }
  if (at < text.length) nodes.push(text.slice(at));
  return nodes;
}

/**
 * @param {RegExpMatchArray} match
 * @returns {Node | string}
 */
function span(match) {
  const [whole, , code, bold1, bold2, italic1, italic2, deleted, label, target, address, escaped] = match;
  if (code !== undefined) return { tag: 'code', children: [code] };
  const strong = bold1 ?? bold2;
  if (strong !== undefined) return { tag: 'strong', children: inline(strong) };
  const emphasis = italic1 ?? italic2;
  if (emphasis !== undefined) return { tag: 'em', children: inline(emphasis) };
  if (deleted !== undefined) return { tag: 's', children: inline(deleted) };
  if (label !== undefined) return link(target, label) ?? whole;
  if (address !== undefined) return link(address, address) ?? whole;
  return escaped;
}

/**
 * @param {string} target
 * @param {string} label
 * @returns {Node | null}
 */
function link(target, label) {
  if (!/^https?:\/\//i.test(target) || !URL.canParse(target)) return null;
  return { tag: 'a', props: { href: new URL(target).href, target: '_blank', rel: 'noopener noreferrer nofollow' }, children: [label] };
}

/**
 * Shows a Markdown text.
 * @param {{text: string}} props
 */
export function Markdown({ text }) {
  return h('div', { class: 'markdown' }, ...parseMarkdown(text).map(element));
}

/**
 * @param {Node | string} node
 * @returns {any}
 */
function element(node) {
  return typeof node === 'string' ? node : h(node.tag, node.props ?? null, ...node.children.map(element));
}
