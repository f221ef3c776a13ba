// Which component shows which page.

import { html } from './lib/html.js';
import { Link, pageUrl } from './lib/router.js';
import { Empty } from './components/notes.js';
import { JobPage } from './playground/job_page.js';
import { HomePage, ModelPage } from './playground/pages.js';
import { pages as dashboard } from './dashboard/pages.js';

/** @typedef {import('./lib/router.js').Route} Route */

/**
 * The component of a route. It gets the route as its property `route`.
 * @param {Route} route
 * @returns {(props: {route: Route}) => any}
 */
export function pageOf({ page, params }) {
  if (page === '' || (page === 'models' && params.length === 0)) return HomePage;
  if (page === 'models') return ModelPage;
  if (page === 'endpoints' && params.length === 1) return ModelPage;
  if (page === 'jobs' && params.length === 1) return JobPage;
  if (params.length === 0 && Object.hasOwn(dashboard, page)) return dashboard[/** @type {keyof typeof dashboard} */ (page)];
  return NotFound;
}

function NotFound() {
  return html`<${Empty} icon="search" title="There is no such page"><${Link} to=${pageUrl()}>Open the first page</${Link}></${Empty}>`;
}
