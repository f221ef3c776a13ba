import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EventParser } from '../lib/sse.js';

/** @param {string} text @param {number} size */
function inPieces(text, size) {
  const parser = new EventParser();
  const events = [];
  for (let at = 0; at < text.length; at += size) events.push(...parser.push(text.slice(at, at + size)));
  return { events, parser };
}

test('events are the same however the stream is cut', () => {
  const text = '\uFEFF: comment\n\nevent: output\nid: 7\ndata: {"a":\ndata: 1}\n\ndata:x\r\n\r\nretry: 50\rdata\r\revent: no data\n\n';
  for (const size of [1, 2, 3, 1000]) {
    const { events, parser } = inPieces(text, size);
    assert.deepEqual(events, [
      { event: 'output', data: '{"a":\n1}', id: '7' },
      { event: 'message', data: 'x', id: '7' },
      { event: 'message', data: '', id: '7' },
    ]);
    assert.deepEqual([parser.lastEventId, parser.retryMs], ['7', 50]);
  }
});

test('an event without its empty line is not delivered', () => {
  assert.deepEqual(inPieces('data: x\n', 3).events, []);
});

test('only the first space after the colon is removed', () => {
  assert.equal(inPieces('data:  x \n\n', 100).events[0].data, ' x ');
});

test('a long line in many pieces is read once', () => {
  const parser = new EventParser();
  const start = performance.now();
  parser.push('data: ');
  for (let piece = 0; piece < 100_000; piece += 1) parser.push('0123456789');
  const [event] = parser.push('\n\n');
  assert.equal(event.data.length, 1_000_000);
  assert.ok(performance.now() - start < 2000);
});
