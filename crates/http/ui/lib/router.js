// Which page is open. Pages are paths below `/ui/`, changed through the History API.

import { html, useEffect, useState } from './html.js';
import { uiUrl } from './root.js';

/** @typedef {{page: string, params: string[], query: URLSearchParams}} Route */

const CHANGED = 'tidegate-route';

/**
 * The route of a URL. `params` are the decoded segments after the page's name.
 * @param {URL} url
 * @param {URL} base URL of the UI's first page
 * @returns {Route}
 */
export function routeOf(url, base = uiUrl) {
  const path = url.pathname.startsWith(base.pathname) ? url.pathname.slice(base.pathname.length) : '';
  const [page, ...params] = path.split('/').filter((segment) => segment !== '').map(decode);
  return { page: page ?? '', params, query: url.searchParams };
}

/**
 * @param {string} segment
 */
function decode(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

/**
 * The URL of a page, relative to `/ui/`: `pageUrl('jobs', id)`.
 * @param {...string} segments
 * @returns {string}
 */
export function pageUrl(...segments) {
  // A model is called `owner/name`; its slash separates two segments.
  const path = segments.flatMap((segment) => segment.split('/')).map(encodeURIComponent).join('/');
  return new URL(path === '' ? '.' : `./${path}`, uiUrl).href;
}

/**
 * Opens a page without loading the document again.
 * @param {string} url an absolute URL of `pageUrl`, with a query or fragment if needed
 * @param {{replace?: boolean}} [options]
 */
export function navigate(url, { replace = false } = {}) {
  if (replace) history.replaceState(null, '', url);
  else history.pushState(null, '', url);
  window.dispatchEvent(new Event(CHANGED));
}

/** The route of the open page; the component renders again when it changes. */
export function useRoute() {
  const [route, setRoute] = useState(() => routeOf(new URL(location.href)));
  useEffect(() => {
    const update = () => setRoute(routeOf(new URL(location.href)));
    window.addEventListener('popstate', update);
    window.addEventListener(CHANGED, update);
    return () => {
      window.removeEventListener('popstate', update);
      window.removeEventListener(CHANGED, update);
    };
  }, []);
  return route;
}

/**
 * A link to a page of the UI.
 * @param {{to: string, class?: string, current?: boolean, children?: any, title?: string, label?: string}} props `to` is a URL of `pageUrl`
 */
export function Link({ to, class: className, current = false, children, title, label }) {
  /** @param {MouseEvent} event */
  const open = (event) => {
    const newTab = event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0;
    if (newTab || event.defaultPrevented) return;
    event.preventDefault();
    navigate(to);
    window.scrollTo(0, 0);
  };
  return html`<a href=${to} class=${className} title=${title} aria-label=${label} aria-current=${current ? 'page' : null} onClick=${open}>${children}</a>`;
}
