// The ids of the jobs that were started in this browser, per account. Only ids are kept: inputs and
// outputs stay on the server. Cleared at sign-out.

import { storagePrefix } from './root.js';

const MOST = 50;

/** @param {string} account */
function key(account) {
  return `${storagePrefix}runs:${account}`;
}

/**
 * The ids of the latest runs, newest first.
 * @param {string} account
 * @returns {string[]}
 */
export function ownRuns(account) {
  try {
    const list = JSON.parse(localStorage.getItem(key(account)) ?? '[]');
    return Array.isArray(list) ? list.filter((id) => typeof id === 'string') : [];
  } catch {
    return [];
  }
}

/**
 * Adds a run.
 * @param {string} account
 * @param {string} id
 */
export function keepRun(account, id) {
  const others = ownRuns(account).filter((other) => other !== id);
  localStorage.setItem(key(account), JSON.stringify([id, ...others].slice(0, MOST)));
}

/** Forgets the runs of every account. */
export function forgetRuns() {
  for (const name of Object.keys(localStorage)) {
    if (name.startsWith(`${storagePrefix}runs:`)) localStorage.removeItem(name);
  }
}
