// The bar at the top of every page: the server, navigation, account and theme.

import { html, useEffect, useRef, useState } from '../lib/html.js';
import { Link, pageUrl } from '../lib/router.js';
import { useLiveState } from '../lib/store.js';
import { nextTheme, setTheme, theme } from '../lib/theme.js';
import { Icon } from './icon.js';

/** @typedef {import('../lib/types.d.ts').Session} Session */

/** The pages of the navigation, in their order. `session.pages` says which exist. */
const ENTRIES = [
  { page: 'models', label: 'Playground', to: '', routes: ['', 'models', 'endpoints'] },
  { page: 'overview', label: 'Overview', to: 'overview', routes: ['overview'] },
  { page: 'jobs', label: 'Jobs', to: 'jobs', routes: ['jobs'] },
  { page: 'deliveries', label: 'Webhooks', to: 'deliveries', routes: ['deliveries'] },
  { page: 'config', label: 'Configuration', to: 'config', routes: ['config'] },
  { page: 'docs', label: 'API', to: 'docs', routes: ['docs'] },
];

/**
 * @param {{session: Session, route: import('../lib/router.js').Route, onSignOut: () => void}} props
 */
export function Header({ session, route, onSignOut }) {
  const entries = ENTRIES.filter(({ page }) => session.pages.includes(page));
  const nav = useRef(/** @type {HTMLElement | null} */ (null));
  // On a phone the entries do not fit, and can be moved sideways.
  useEffect(() => {
    nav.current?.querySelector('[aria-current=page]')?.scrollIntoView({ block: 'nearest', inline: 'center' });
  }, [route.page]);
  return html`<header class="header">
    <a class="skip-link" href="#main">Skip to content</a>
    <${Link} to=${pageUrl()} class="brand" title="tidegate ${session.server.version}">
      <svg class="brand-mark" viewBox="0 0 32 32" aria-hidden="true"><path d="M4 13c4 0 4-3.5 8-3.500s4 3.5 8 3.5 4-3.5 8-3.500M4 22c4 0 4-3.5 8-3.500s4 3.5 8 3.5 4-3.5 8-3.5" /></svg>
      <span class="brand-name">tidegate</span><span class="brand-command">${session.server.command}</span>
    </${Link}>
    <nav class="nav" aria-label="Pages" ref=${nav}>
      ${entries.map((entry) => html`<${Link} key=${entry.page} to=${pageUrl(entry.to)} class="nav-link" current=${entry.routes.includes(route.page)}>${entry.label}</${Link}>`)}
    </nav>
    <div class="header-end">
      <${Connection} />
      <${ThemeButton} />
      ${session.tokens ? html`<${Account} session=${session} onSignOut=${onSignOut} />` : null}
    </div>
  </header>`;
}

/** Says when live data does not arrive; silent otherwise. */
function Connection() {
  const { connected, ready } = useLiveState();
  const lost = ready && !connected;
  return html`<span class="connection" role="status">${lost ? html`<span class="badge badge-warn"><span class="dot" aria-hidden="true"></span>reconnecting</span>` : null}</span>`;
}

function ThemeButton() {
  const [current, setCurrent] = useState(theme);
  const change = () => {
    const next = nextTheme(current);
    setTheme(next);
    setCurrent(next);
  };
  const icon = { auto: 'contrast', light: 'sun', dark: 'moon' }[current];
  const label = { auto: 'Theme: as the system', light: 'Theme: light', dark: 'Theme: dark' }[current];
  return html`<button type="button" class="button quiet icon-only" onClick=${change} aria-label=${label} title=${label}><${Icon} name=${icon} /></button>`;
}

/**
 * @param {{session: Session, onSignOut: () => void}} props
 */
function Account({ session, onSignOut }) {
  const name = session.account === '~' ? 'anonymous' : session.account;
  return html`<span class="account"><${Icon} name="user" /><span class="account-name">${name}</span>${session.role === 'admin' ? html`<span class="tag">admin</span>` : null}</span>
    <button type="button" class="button quiet" onClick=${onSignOut}>Sign out</button>`;
}
