// How many tabs read streams of runs and chats at once. A browser has six connections to an HTTP/1.1
// server: one for the live state, some for ordinary requests, the rest for these.

import { storagePrefix } from './root.js';

const SLOTS = 3;

/**
 * Runs a task in one of the slots. Returns false at once if none is free.
 * @param {() => Promise<void>} run
 * @returns {Promise<boolean>}
 */
export async function inStreamSlot(run) {
  // Without Web Locks (no secure context) only the visible tab streams, which needs no limit.
  if (globalThis.navigator?.locks === undefined) {
    await run();
    return true;
  }
  for (let slot = 0; slot < SLOTS; slot += 1) {
    const ran = await navigator.locks.request(`${storagePrefix}run-stream:${slot}`, { ifAvailable: true }, async (lock) => {
      if (lock === null) return false;
      await run();
      return true;
    });
    if (ran) return true;
  }
  return false;
}

/**
 * Runs a task in one of the slots, as soon as one is free: a stream that is the run itself cannot be read
 * otherwise. Fails with the signal's reason if it is aborted before.
 * @param {() => Promise<void>} run
 * @param {{signal: AbortSignal, onWait: () => void}} options
 */
export async function whenStreamSlotIsFree(run, { signal, onWait }) {
  if (await inStreamSlot(run)) return;
  onWait();
  // Tabs that wait are spread over the slots.
  const slot = Math.floor(Math.random() * SLOTS);
  await navigator.locks.request(`${storagePrefix}run-stream:${slot}`, { signal }, run);
}
