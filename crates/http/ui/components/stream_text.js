// A text that grows: only what is new is added to the document, as text nodes. Rendering the whole
// text again for each frame would make long outputs slow.

import { html, useLayoutEffect, useRef } from '../lib/html.js';
import { TerminalReader } from '../lib/terminal_text.js';

/** A block gets no more text after this many characters, so that the browser lays out only the last. */
const BLOCK_LENGTH = 16_384;

/**
 * @param {{text: string, generation?: number, class?: string, label: string, follow?: boolean, terminal?: boolean}} props
 *   a new `generation` replaces the text; `follow` scrolls to the end while the end is visible; `terminal`
 *   shows progress bars and colours as a terminal does
 */
export function StreamText({ text, generation = 0, class: className = '', label, follow = false, terminal = false }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const shown = useRef({ generation: -1, length: 0, reader: new TerminalReader() });
  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    const atEnd = element.scrollHeight - element.scrollTop - element.clientHeight < 24;
    if (shown.current.generation !== generation || shown.current.length > text.length) {
      element.replaceChildren();
      shown.current = { generation, length: 0, reader: new TerminalReader() };
    }
    const added = text.slice(shown.current.length);
    for (const piece of terminal ? shown.current.reader.push(added) : [{ replace: false, text: added }]) {
      if (piece.replace) removeLastLine(element);
      appendText(element, piece.text);
    }
    shown.current.length = text.length;
    if (follow && atEnd) element.scrollTop = element.scrollHeight;
  }, [text, generation]);
  return html`<div class="stream-text ${className}" ref=${box} tabindex="0" role="region" aria-label=${label}></div>`;
}

/**
 * Adds a text to the last block. A block ends only at a line end, because each is a paragraph.
 * @param {HTMLElement} element
 * @param {string} text
 */
function appendText(element, text) {
  let rest = text;
  while (rest !== '') {
    let block = /** @type {HTMLElement | null} */ (element.lastElementChild);
    if (block === null || block.dataset.closed !== undefined) {
      block = document.createElement('div');
      element.append(block);
    }
    const length = Number(block.dataset.length ?? 0);
    const newline = length + rest.length < BLOCK_LENGTH ? -1 : rest.indexOf('\n', Math.max(BLOCK_LENGTH - length, 0));
    const piece = newline < 0 ? rest : rest.slice(0, newline);
    if (piece !== '') block.append(piece);
    block.dataset.length = String(length + piece.length);
    if (newline < 0) return;
    block.dataset.closed = '';
    rest = rest.slice(newline + 1);
  }
}

/**
 * Removes the text behind the last line end. The line is in the last block, because a block ends at one.
 * @param {HTMLElement} element
 */
function removeLastLine(element) {
  const block = /** @type {HTMLElement | null} */ (element.lastElementChild);
  if (block === null || block.dataset.closed !== undefined) return;
  let length = Number(block.dataset.length ?? 0);
  for (let node = block.lastChild; node !== null; node = block.lastChild) {
    const text = node.textContent ?? '';
    const kept = text.slice(0, text.lastIndexOf('\n') + 1);
    length -= text.length - kept.length;
    node.textContent = kept;
    if (kept !== '') break;
    node.remove();
  }
  block.dataset.length = String(length);
}
