// Server-sent events over `fetch`, because `EventSource` cannot send a token.

import { ApiError, request } from './api.js';

/** @typedef {{event: string, data: string, id: string | null}} ServerEvent */

/** Turns the text of an event stream into events. */
export class EventParser {
  constructor() {
    /** The id to resume after. @type {string | null} */
    this.lastEventId = null;
    /** The server's reconnection delay. @type {number | null} */
    this.retryMs = null;
    /** The line that has not ended. It only grows, so that a long line is read once. */
    this.rest = '';
    /** Whether the last piece ended with a carriage return, which may be the first half of a line end. */
    this.afterReturn = false;
    this.event = '';
    /** @type {string[]} */
    this.data = [];
    this.started = false;
  }

  /**
   * Takes the next piece of the stream and returns the events that are complete.
   * @param {string} text
   * @returns {ServerEvent[]}
   */
  push(text) {
    if (text === '') return [];
    const skipped = (!this.started && text[0] === '\uFEFF') || (this.afterReturn && text[0] === '\n');
    this.started = true;
    this.afterReturn = text.endsWith('\r');
    /** @type {ServerEvent[]} */
    const events = [];
    const piece = skipped ? text.slice(1) : text;
    let start = 0;
    for (const { 0: mark, index } of piece.matchAll(/\r\n?|\n/g)) {
      const event = this.line(this.rest + piece.slice(start, index));
      if (event !== null) events.push(event);
      this.rest = '';
      start = index + mark.length;
    }
    this.rest += piece.slice(start);
    return events;
  }

  /**
   * @param {string} line
   * @returns {ServerEvent | null}
   */
  line(line) {
    if (line === '') return this.dispatch();
    const colon = line.indexOf(':');
    if (colon === 0) return null;
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? '' : line.slice(colon + 1);
    if (value.startsWith(' ')) value = value.slice(1);
    if (field === 'data') this.data.push(value);
    else if (field === 'event') this.event = value;
    else if (field === 'id' && !value.includes('\0')) this.lastEventId = value;
    else if (field === 'retry' && /^\d+$/.test(value)) this.retryMs = Number(value);
    return null;
  }

  /** @returns {ServerEvent | null} */
  dispatch() {
    const { event, data } = this;
    this.event = '';
    this.data = [];
    if (data.length === 0) return null;
    return { event: event || 'message', data: data.join('\n'), id: this.lastEventId };
  }
}

const FIRST_DELAY_MS = 250;
const LAST_DELAY_MS = 10_000;
// The server sends a comment every 15 seconds. A connection without one is dead.
const SILENCE_MS = 45_000;

/**
 * @typedef {object} FollowOptions
 * @property {AbortSignal} signal ends the stream
 * @property {(event: ServerEvent) => boolean | void} onEvent returns true for the last event
 * @property {(connected: boolean) => void} [onConnected]
 * @property {string | null} [lastEventId] resumes after this event
 */

/**
 * Reads an event stream until `onEvent` returns true, the signal aborts or the server refuses it.
 * Connects again after a break, after the last event that was received.
 * @param {string | (() => string)} path relative to the server's root
 * @param {FollowOptions} options
 */
export async function followEvents(path, options) {
  const { signal, onEvent, onConnected = () => {} } = options;
  let lastEventId = options.lastEventId ?? null;
  let delay = FIRST_DELAY_MS;
  while (!signal.aborted) {
    const parser = new EventParser();
    parser.lastEventId = lastEventId;
    try {
      const ended = await readEvents(typeof path === 'string' ? path : path(), parser, signal, (event) => {
        delay = FIRST_DELAY_MS;
        return onEvent(event) === true;
      }, onConnected);
      if (ended) return;
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && refused(error.status)) throw error;
    }
    lastEventId = parser.lastEventId;
    onConnected(false);
    await pause(parser.retryMs ?? delay * (0.75 + Math.random() / 2), signal);
    delay = Math.min(delay * 2, LAST_DELAY_MS);
  }
}

/**
 * @param {number} status
 */
function refused(status) {
  return status >= 400 && status < 500 && status !== 408 && status !== 429;
}

/**
 * Reads one connection. Returns true after the last event.
 * @param {string} path
 * @param {EventParser} parser
 * @param {AbortSignal} signal
 * @param {(event: ServerEvent) => boolean} onEvent
 * @param {(connected: boolean) => void} onConnected
 */
async function readEvents(path, parser, signal, onEvent, onConnected) {
  const silence = new AbortController();
  const either = AbortSignal.any([signal, silence.signal]);
  /** @type {Record<string, string>} */
  const headers = { Accept: 'text/event-stream' };
  if (parser.lastEventId !== null) headers['Last-Event-ID'] = parser.lastEventId;
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  try {
    const response = await request(path, { headers, signal: either });
    onConnected(true);
    for await (const text of textChunks(response)) {
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
      for (const event of parser.push(text)) {
        if (signal.aborted) return true;
        if (onEvent(event)) {
          // Closes the connection, which the browser would otherwise keep until the server ends it.
          silence.abort();
          return true;
        }
      }
    }
    return false;
  } finally {
    clearTimeout(timer);
  }
}

/**
 * The body of a response as pieces of text.
 * @param {Response} response
 */
export async function* textChunks(response) {
  if (response.body === null) return;
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield decoder.decode(value, { stream: true });
  }
}

/**
 * @param {number} ms
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}
