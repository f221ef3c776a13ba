// The filters of the jobs table, as the query of the page's URL and of the request to the server.

/**
 * @typedef {object} Filters
 * @property {string} status `''` for all, `open`, `over`, or one status
 * @property {string} model `''` for all
 * @property {string} account `''` for all; `~` is the anonymous account
 * @property {string} idPrefix
 * @property {string | null} before the cursor of the page; null for the first page
 */

/** The filters that show every job. @type {Filters} */
export const NO_FILTERS = Object.freeze({ status: '', model: '', account: '', idPrefix: '', before: null });

/** The statuses that can be chosen, with their labels. @type {[string, string][]} */
export const STATUSES = [
  ['', 'Any status'],
  ['open', 'Open (waiting or running)'],
  ['over', 'Ended'],
  ['queued', 'Queued'],
  ['starting', 'Starting'],
  ['processing', 'Processing'],
  ['succeeded', 'Succeeded'],
  ['failed', 'Failed'],
  ['canceled', 'Canceled'],
  ['aborted', 'Aborted'],
];

/** How many jobs a page of the table has. */
export const PAGE_SIZE = 50;

/**
 * The filters in the query of the page. What is not a filter is ignored: a link may come from anywhere.
 * @param {URLSearchParams} query
 * @returns {Filters}
 */
export function filtersOf(query) {
  const text = (/** @type {string} */ name) => (query.get(name) ?? '').trim();
  const status = text('status');
  return {
    status: STATUSES.some(([value]) => value === status) ? status : '',
    model: text('model'),
    account: text('account'),
    idPrefix: text('id_prefix'),
    before: text('before') || null,
  };
}

/**
 * The query for filters, with its question mark; empty without filters.
 * @param {Filters} filters
 * @returns {string}
 */
export function queryOf(filters) {
  const text = parameters(filters).toString();
  return text === '' ? '' : `?${text}`;
}

/**
 * The path of the request for one page of jobs, relative to the server's root.
 * @param {Filters} filters
 * @returns {string}
 */
export function requestPath(filters) {
  const query = parameters(filters);
  query.set('limit', String(PAGE_SIZE));
  return `admin/jobs?${query}`;
}

/**
 * Whether any filter is set. The page of the table is none.
 * @param {Filters} filters
 * @returns {boolean}
 */
export function isFiltered({ status, model, account, idPrefix }) {
  return [status, model, account, idPrefix].some((value) => value !== '');
}

/**
 * @param {Filters} filters
 * @returns {URLSearchParams}
 */
function parameters({ status, model, account, idPrefix, before }) {
  const query = new URLSearchParams();
  const pairs = { status, model, account, id_prefix: idPrefix, before: before ?? '' };
  for (const [name, value] of Object.entries(pairs)) if (value !== '') query.set(name, value);
  return query;
}
