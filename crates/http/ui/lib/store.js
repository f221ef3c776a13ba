// The live state of the server in every tab: a snapshot and the changes that follow it.
//
// One tab holds the stream of changes (by a Web Lock) and feeds the others by a BroadcastChannel,
// because a browser has only six connections to an HTTP/1.1 server. Web Locks exist only in secure
// contexts; elsewhere each visible tab holds a stream of its own, and hidden tabs hold none.

import { ApiError } from './api.js';
import { followEvents } from './sse.js';
import { storagePrefix } from './root.js';
import { useEffect, useState } from './html.js';
import { whileVisible } from './visibility.js';

/** @typedef {import('./types.d.ts').Sections} Sections */
/** @typedef {{epoch: string, seq: number, at: string, sections: Sections}} Snapshot */
/** @typedef {{epoch: string, seq: number, at: string, set: Sections}} Change */

/**
 * Applies a change to a snapshot. Returns null if changes between them are missing.
 * @param {Snapshot | null} snapshot
 * @param {Change} change
 * @returns {Snapshot | null}
 */
export function applyChange(snapshot, change) {
  if (snapshot === null || snapshot.epoch !== change.epoch || change.seq !== snapshot.seq + 1) return null;
  return { epoch: change.epoch, seq: change.seq, at: change.at, sections: { ...snapshot.sections, ...change.set } };
}

/**
 * @typedef {object} StoreParts what the store needs of the browser, replaced in tests
 * @property {(path: () => string, options: import('./sse.js').FollowOptions) => Promise<void>} follow
 * @property {{request: (name: string, options: {signal: AbortSignal}, run: () => Promise<void>) => Promise<unknown>} | null} locks
 * @property {(name: string, onMessage: (message: any) => void) => {postMessage: (message: any) => void, close: () => void}} openChannel
 */

/** The state of the server, shared by all tabs of one account. */
export class Store {
  /**
   * @param {StoreParts} parts
   */
  constructor(parts) {
    this.parts = parts;
    /** @type {Snapshot | null} */
    this.snapshot = null;
    this.connected = false;
    /** True in the tab that holds the stream. */
    this.leads = false;
    /** @type {Set<() => void>} */
    this.listeners = new Set();
    /** @type {AbortController | null} */
    this.stopping = null;
    /** @type {ReturnType<StoreParts['openChannel']> | null} */
    this.channel = null;
  }

  /**
   * Starts to follow the server.
   * @param {string} scope names the viewer; only tabs with the same scope share data
   */
  start(scope) {
    this.stop();
    const stopping = new AbortController();
    this.stopping = stopping;
    this.channel = this.parts.openChannel(`${storagePrefix}changes:${scope}`, (message) => this.receive(message));
    this.channel.postMessage({ type: 'hello' });
    if (this.parts.locks === null) {
      whileVisible(stopping.signal, (signal) => this.lead(signal));
      return;
    }
    this.parts.locks
      .request(`${storagePrefix}stream:${scope}`, { signal: stopping.signal }, () => this.lead(stopping.signal))
      .catch(() => {}); // Aborted while it waited: the user signed out.
  }

  /** Ends the stream and forgets the state. */
  stop() {
    this.stopping?.abort();
    this.channel?.close();
    this.stopping = null;
    this.channel = null;
    this.snapshot = null;
    this.connected = false;
    this.leads = false;
    this.notify();
  }

  /**
   * Holds the stream until the signal aborts or the server refuses it.
   * @param {AbortSignal} signal
   */
  async lead(signal) {
    this.leads = true;
    try {
      while (!signal.aborted) await this.readStream(signal);
    } catch (error) {
      // 401 shows the sign-in form; the other refusals leave the pages without live data.
      if (!(error instanceof ApiError)) throw error;
    } finally {
      if (!signal.aborted) {
        this.leads = false;
        this.setConnected(false);
      }
    }
  }

  /**
   * Reads the stream until a change is missing.
   * @param {AbortSignal} outer
   */
  async readStream(outer) {
    const restart = new AbortController();
    const signal = AbortSignal.any([outer, restart.signal]);
    await this.parts.follow(() => this.streamPath(), {
      signal,
      onConnected: (connected) => this.setConnected(connected),
      onEvent: ({ event, data }) => {
        if (this.take(event, JSON.parse(data))) return;
        this.snapshot = null;
        restart.abort();
      },
    });
  }

  /** The request that continues after the last change, or asks for a snapshot. */
  streamPath() {
    if (this.snapshot === null) return 'ui/api/changes';
    const query = new URLSearchParams({ epoch: this.snapshot.epoch, since: String(this.snapshot.seq) });
    return `ui/api/changes?${query}`;
  }

  /**
   * Takes an event of the stream and passes it on. Returns false if a change is missing.
   * @param {string} event
   * @param {any} document
   */
  take(event, document) {
    if (event === 'snapshot') {
      this.setSnapshot(document);
      this.channel?.postMessage({ type: 'snapshot', snapshot: document });
      return true;
    }
    if (event !== 'change' || this.snapshot === null) return event !== 'change';
    const change = { ...document, epoch: this.snapshot.epoch };
    const next = applyChange(this.snapshot, change);
    if (next === null) return false;
    this.setSnapshot(next);
    this.channel?.postMessage({ type: 'change', change });
    return true;
  }

  /**
   * Takes a message of another tab.
   * @param {any} message
   */
  receive(message) {
    if (message.type === 'hello') {
      if (!this.leads) return;
      if (this.snapshot !== null) this.channel?.postMessage({ type: 'snapshot', snapshot: this.snapshot });
      this.channel?.postMessage({ type: 'connected', connected: this.connected });
      return;
    }
    if (this.leads) return;
    if (message.type === 'connected') this.setConnected(message.connected);
    else if (message.type === 'snapshot') this.follow(message.snapshot);
    else if (message.type === 'change') this.follow(applyChange(this.snapshot, message.change));
  }

  /**
   * Takes the next state from the tab that holds the stream, or asks it for a snapshot.
   * @param {Snapshot | null} next
   */
  follow(next) {
    if (next === null) {
      this.channel?.postMessage({ type: 'hello' });
      return;
    }
    this.connected = true;
    this.setSnapshot(next);
  }

  /** @param {Snapshot} snapshot */
  setSnapshot(snapshot) {
    this.snapshot = snapshot;
    this.notify();
  }

  /** @param {boolean} connected */
  setConnected(connected) {
    if (this.connected === connected) return;
    this.connected = connected;
    if (this.leads) this.channel?.postMessage({ type: 'connected', connected });
    this.notify();
  }

  notify() {
    for (const listener of this.listeners) listener();
  }

  /**
   * Calls the listener after each change. Returns the function that ends it.
   * @param {() => void} listener
   */
  subscribe(listener) {
    this.listeners.add(listener);
    return () => {
      this.listeners.delete(listener);
    };
  }
}

/** The store of this tab. */
export const store = new Store({
  follow: followEvents,
  locks: globalThis.navigator?.locks ?? null,
  openChannel: (name, onMessage) => {
    const channel = new BroadcastChannel(name);
    channel.onmessage = ({ data }) => onMessage(data);
    return channel;
  },
});

/**
 * The given sections of the server's state. The component renders again when one of them changes.
 * A section is undefined until the first snapshot, and if the server or the role has none.
 * @param {...string} names
 * @returns {Sections}
 */
export function useSections(...names) {
  const read = () => Object.fromEntries(names.map((name) => [name, store.snapshot?.sections[name]]));
  const [values, setValues] = useState(read);
  useEffect(() => {
    const update = () => setValues((previous) => {
      const next = read();
      return names.every((name) => previous[name] === next[name]) ? previous : next;
    });
    update();
    return store.subscribe(update);
  }, [names.join()]);
  return values;
}

/**
 * Whether live data arrives, and the time of the last change.
 * @returns {{connected: boolean, ready: boolean, at: string | null}}
 */
export function useLiveState() {
  const read = () => ({ connected: store.connected, ready: store.snapshot !== null, at: store.snapshot?.at ?? null });
  const [state, setState] = useState(read);
  useEffect(() => {
    const update = () => setState(read());
    update();
    return store.subscribe(update);
  }, []);
  return state;
}
