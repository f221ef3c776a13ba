import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TerminalReader, terminalText } from '../lib/terminal_text.js';

const BAR = 'start\n  0%|   |\r 50%|#  |\r100%|###|\ndone\r\n';

test('a carriage return writes the line again', () => {
  assert.equal(terminalText(BAR), 'start\n100%|###|\ndone\n');
  assert.equal(terminalText('a\r'), 'a');
  assert.equal(terminalText('a\r\r\nb'), 'a\nb');
});

test('colours and titles are removed', () => {
  assert.equal(terminalText('\x1b[1;31mred\x1b[0m \x1b]0;title\x07x\x1b[K'), 'red x');
});

test('the pieces of a stream are read as the whole text', () => {
  const text = `${BAR}\x1b[32mgreen\x1b[0m\r\x1b[Knext\r`;
  for (let at = 0; at < text.length; at += 1) {
    const reader = new TerminalReader();
    let shown = '';
    for (const { replace, text: part } of [...reader.push(text.slice(0, at)), ...reader.push(text.slice(at))]) {
      shown = (replace ? shown.slice(0, shown.lastIndexOf('\n') + 1) : shown) + part;
    }
    assert.equal(shown, 'start\n100%|###|\ndone\nnext', `cut at ${at}`);
  }
});
