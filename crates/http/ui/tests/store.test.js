import assert from 'node:assert/strict';
import { test } from 'node:test';
import { applyChange, Store } from '../lib/store.js';

const snapshot = { epoch: 'e', seq: 5, at: 't5', sections: { overview: { waiting: 0 }, queues: [] } };

test('a change replaces its sections and leaves the others', () => {
  const next = applyChange(snapshot, { epoch: 'e', seq: 6, at: 't6', set: { overview: { waiting: 1 } } });
  assert.deepEqual(next, { epoch: 'e', seq: 6, at: 't6', sections: { overview: { waiting: 1 }, queues: [] } });
});

test('a gap, a repetition and another server are not applied', () => {
  for (const change of [{ epoch: 'e', seq: 7 }, { epoch: 'e', seq: 5 }, { epoch: 'f', seq: 6 }]) {
    assert.equal(applyChange(snapshot, { ...change, at: '', set: {} }), null);
  }
  assert.equal(applyChange(null, { epoch: 'e', seq: 1, at: '', set: {} }), null);
});

/** Tabs of one browser: their locks and channels are shared. */
class Browser {
  constructor() {
    /** @type {{name: string, onMessage: (message: any) => void}[]} */
    this.channels = [];
    /** @type {Map<string, Promise<unknown>>} */
    this.queues = new Map();
    /** @type {{path: string, send: (event: string, data: any) => void, tab: number, signal: AbortSignal}[]} */
    this.streams = [];
  }

  /** @param {number} tab */
  open(tab) {
    const store = new Store({
      follow: (path, { signal, onEvent, onConnected }) => new Promise((resolve) => {
        signal.addEventListener('abort', () => resolve());
        onConnected?.(true);
        const send = (/** @type {string} */ event, /** @type {any} */ data) => onEvent({ event, data: JSON.stringify(data), id: null });
        this.streams.push({ path: path(), send, tab, signal });
      }),
      locks: {
        request: (name, { signal }, run) => {
          const turn = (this.queues.get(name) ?? Promise.resolve()).then(() => (signal.aborted ? undefined : run()));
          this.queues.set(name, turn);
          return turn;
        },
      },
      openChannel: (name, onMessage) => {
        const channel = { name, onMessage };
        this.channels.push(channel);
        return {
          postMessage: (message) => this.channels.filter((other) => other !== channel && other.name === name).forEach((other) => other.onMessage(structuredClone(message))),
          close: () => { this.channels = this.channels.filter((other) => other !== channel); },
        };
      },
    });
    store.start('account');
    return store;
  }
}

const settled = () => new Promise((resolve) => setImmediate(resolve));

test('one tab holds the stream and feeds the other, also one that opens later', async () => {
  const browser = new Browser();
  const first = browser.open(1);
  const second = browser.open(2);
  await settled();
  assert.deepEqual(browser.streams.map(({ tab, path }) => [tab, path]), [[1, 'ui/api/changes']]);
  browser.streams[0].send('snapshot', snapshot);
  browser.streams[0].send('change', { seq: 6, at: 't6', set: { queues: [1] } });
  const third = browser.open(3);
  await settled();
  for (const tab of [first, second, third]) assert.deepEqual([tab.snapshot?.seq, tab.snapshot?.sections.queues, tab.connected], [6, [1], true]);
});

test('the next tab takes over and resumes where the stream ended', async () => {
  const browser = new Browser();
  const first = browser.open(1);
  const second = browser.open(2);
  await settled();
  browser.streams[0].send('snapshot', snapshot);
  first.stop();
  await settled();
  assert.deepEqual(browser.streams.slice(1).map(({ tab, path }) => [tab, path]), [[2, 'ui/api/changes?epoch=e&since=5']]);
  assert.equal(second.leads, true);
});

test('a gap in the stream asks for a new snapshot', async () => {
  const browser = new Browser();
  const tab = browser.open(1);
  await settled();
  browser.streams[0].send('snapshot', snapshot);
  browser.streams[0].send('change', { seq: 8, at: 't8', set: {} });
  await settled();
  assert.equal(browser.streams[0].signal.aborted, true);
  assert.equal(browser.streams[1].path, 'ui/api/changes');
  assert.equal(tab.snapshot, null);
});

test('a tab that missed a message asks the holder for the state', async () => {
  const browser = new Browser();
  browser.open(1);
  const second = browser.open(2);
  await settled();
  browser.streams[0].send('snapshot', snapshot);
  second.snapshot = { ...snapshot, seq: 3 };
  browser.streams[0].send('change', { seq: 6, at: 't6', set: { queues: [2] } });
  await settled();
  assert.deepEqual([second.snapshot.seq, second.snapshot.sections.queues], [6, [2]]);
});
