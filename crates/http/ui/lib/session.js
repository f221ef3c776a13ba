// Who uses the page: the session document of the server, sign-in and sign-out.

import { requestJson } from './api.js';
import { createContext, useContext } from './html.js';
import { forgetRuns } from './own_runs.js';
import { store } from './store.js';
import { forgetToken, keepToken, token } from './token.js';

/** @typedef {import('./types.d.ts').Session} Session */

/** The session of the signed-in user, for every page. */
const SessionContext = createContext(/** @type {Session | null} */ (null));

export const SessionProvider = SessionContext.Provider;

/**
 * The session. Pages render only when there is one.
 * @returns {Session}
 */
export function useSession() {
  const session = useContext(SessionContext);
  if (session === null) throw new Error('a page was rendered without a session');
  return session;
}

/**
 * Reads the session and starts the live data.
 * @returns {Promise<Session>}
 */
export async function openSession() {
  const session = await requestJson('ui/api/session');
  store.start(`${session.account}:${session.role}:${hash(token() ?? '')}`);
  return session;
}

/**
 * Signs in with a token. Fails with `ApiError` 401 if the server does not know it.
 * @param {string} value
 * @param {{remember: boolean}} options
 */
export async function signIn(value, { remember }) {
  keepToken(value, { remember });
  try {
    return await openSession();
  } catch (error) {
    forgetToken();
    throw error;
  }
}

/** Forgets the token and the ids of the user's jobs. */
export function signOut() {
  store.stop();
  forgetToken();
  forgetRuns();
}

/**
 * FNV-1a. Separates the shared data of tabs with different tokens without writing the token.
 * @param {string} text
 */
function hash(text) {
  let value = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) {
    value = Math.imul(value ^ text.charCodeAt(at), 0x01000193) >>> 0;
  }
  return value.toString(16);
}
