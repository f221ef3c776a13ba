// The first module: signs in, then shows the shell with the page of the URL.

import { ApiError, UNAUTHORIZED } from './lib/api.js';
import { html, render, useEffect, useErrorBoundary, useLayoutEffect, useState } from './lib/html.js';
import { useRoute } from './lib/router.js';
import { openSession, SessionProvider, signOut } from './lib/session.js';
import { store } from './lib/store.js';
import { applyTheme } from './lib/theme.js';
import { token } from './lib/token.js';
import { ErrorNote } from './components/notes.js';
import { SignIn } from './components/sign_in.js';
import { Header } from './components/header.js';
import { Toaster } from './components/toast.js';
import { pageOf } from './page_table.js';

/** @typedef {import('./lib/types.d.ts').Session} Session */

function App() {
  const [session, setSession] = useState(/** @type {Session | null} */ (null));
  const [failure, setFailure] = useState(/** @type {{status: number, message: string} | null} */ (null));

  const open = () => openSession().then(
    (value) => { setSession(value); setFailure(null); },
    (error) => setFailure((earlier) => (error.status === 401 && earlier?.status === 401 ? earlier : error)),
  );
  useEffect(() => {
    void open();
    const expired = () => {
      store.stop();
      setSession(null);
      setFailure(new ApiError(401, token() === null ? '' : 'The server no longer accepts this token.'));
    };
    window.addEventListener(UNAUTHORIZED, expired);
    return () => window.removeEventListener(UNAUTHORIZED, expired);
  }, []);

  if (session !== null) {
    const leave = () => {
      signOut();
      setSession(null);
      setFailure(new ApiError(401, ''));
    };
    return html`<${SessionProvider} value=${session}><${Shell} session=${session} onSignOut=${leave} /></${SessionProvider}>`;
  }
  if (failure?.status === 401) return html`<${SignIn} onSession=${setSession} message=${failure.message} />`;
  if (failure !== null) return html`<main class="page narrow"><${ErrorNote} title="The page could not be opened" error=${failure} onRetry=${open} /></main>`;
  return null;
}

/**
 * @param {{session: Session, onSignOut: () => void}} props
 */
function Shell({ session, onSignOut }) {
  const route = useRoute();
  // In a layout effect, so that a page that has a better title sets it afterwards.
  useLayoutEffect(() => {
    document.title = route.page === '' ? 'tidegate' : `${route.page} · tidegate`;
  }, [route.page, ...route.params]);
  return html`<${Header} session=${session} route=${route} onSignOut=${onSignOut} />
    <main id="main" class="page" tabindex="-1"><${Page} key=${[route.page, ...route.params].join('/')} route=${route} /></main>
    <${Toaster} />`;
}

/**
 * @param {{route: import('./lib/router.js').Route}} props
 */
function Page({ route }) {
  const [error, reset] = useErrorBoundary((cause) => console.error(cause));
  if (error !== undefined) return html`<${ErrorNote} title="This page has an error" error=${error} onRetry=${reset} />`;
  return html`<${pageOf(route)} route=${route} />`;
}

/** The icon's address is relative to the first page; the History API would make it relative to the next. */
function fixIcon() {
  const icon = /** @type {HTMLLinkElement | null} */ (document.querySelector('link[rel=icon]'));
  if (icon !== null) icon.href = new URL('icon.svg', import.meta.url).href;
}

applyTheme();
fixIcon();
render(html`<${App} />`, /** @type {Element} */ (document.getElementById('app')));
