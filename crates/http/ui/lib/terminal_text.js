// What a program writes to a terminal, as plain text: a carriage return writes the line again, as progress
// bars do, and colours are removed.

/** Complete control sequences, and titles of windows. */
const SEQUENCES = /\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)/g;
/** Carriage returns and the begin of a sequence: what follows decides about them. */
const UNFINISHED = /\r*(?:\x1b|\x1b\[[0-?]*[ -/]*|\x1b\][^\x07\x1b]{0,1000}\x1b?)?$/;

/** A text to add; `replace`: in place of the current line. @typedef {{replace: boolean, text: string}} Piece */

/** Reads the text of a terminal in pieces. */
export class TerminalReader {
  constructor() {
    /** What may be the begin of a sequence. */
    this.rest = '';
  }

  /**
   * @param {string} text
   * @returns {Piece[]}
   */
  push(text) {
    const plain = (this.rest + text).replace(SEQUENCES, '').replace(/\r+\n/g, '\n');
    this.rest = UNFINISHED.exec(plain)?.[0] ?? '';
    return plain.slice(0, plain.length - this.rest.length).split(/\r+/)
      .map((part, index) => ({ replace: index > 0, text: part }))
      .filter((piece, index, pieces) => piece.text !== '' && !isReplaced(piece, pieces[index + 1]));
  }
}

/**
 * Whether the next piece replaces the whole one.
 * @param {Piece} piece
 * @param {Piece | undefined} next
 */
function isReplaced(piece, next) {
  return piece.replace && next !== undefined && next.text !== '' && !piece.text.includes('\n');
}

/**
 * The text that a terminal shows at the end.
 * @param {string} text
 * @returns {string}
 */
export function terminalText(text) {
  return new TerminalReader().push(text).reduce((shown, piece) => (piece.replace ? shown.slice(0, shown.lastIndexOf('\n') + 1) : shown) + piece.text, '');
}
