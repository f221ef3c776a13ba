// The rows of the jobs table while it refreshes: a new answer of the server must not move the row
// that the user is about to click.

/**
 * A job as `GET /admin/jobs` lists it. Fields without a value are absent.
 * @typedef {object} JobRow
 * @property {string} id
 * @property {string} [account] absent for the anonymous account
 * @property {string} model
 * @property {string} version
 * @property {string} kind
 * @property {string} face the API that created the job
 * @property {string} status
 * @property {string} created_at
 * @property {string} [started_at]
 * @property {string} [completed_at]
 * @property {string} [error]
 * @property {number} waited_s
 * @property {number} [ran_s]
 */

/** The rows that are shown, and how many newer ones wait to be shown. @typedef {{rows: JobRow[], unseen: number}} Shown */

const OPEN = new Set(['queued', 'starting', 'processing']);

/**
 * The account of a job as paths name it.
 * @param {JobRow} job
 * @returns {string}
 */
export function accountOf(job) {
  return job.account ?? '~';
}

/**
 * The identity of a row. Two accounts may have jobs with the same id.
 * @param {JobRow} job
 * @returns {string}
 */
export function keyOf(job) {
  return `${accountOf(job)}/${job.id}`;
}

/**
 * Whether the job waits or runs.
 * @param {JobRow} job
 * @returns {boolean}
 */
export function isOpen(job) {
  return OPEN.has(job.status);
}

/**
 * Merges a new answer into the table. While `held`, each row keeps its place: known rows get their new
 * values, new ones are only counted.
 * @param {JobRow[]} rows the rows that are shown
 * @param {JobRow[]} answer
 * @param {boolean} held
 * @returns {Shown}
 */
export function merge(rows, answer, held) {
  if (!held || rows.length === 0) return { rows: answer, unseen: 0 };
  const fresh = new Map(answer.map((job) => [keyOf(job), job]));
  const kept = rows.map((job) => fresh.get(keyOf(job)) ?? job);
  const known = new Set(rows.map(keyOf));
  return { rows: kept, unseen: answer.filter((job) => !known.has(keyOf(job))).length };
}

/**
 * The open rows that the answer does not have any more. Their status is outdated: they ended and do not
 * match the filters, or are on another page now.
 * @param {JobRow[]} rows
 * @param {JobRow[]} answer
 * @returns {JobRow[]}
 */
export function outdated(rows, answer) {
  const fresh = new Set(answer.map(keyOf));
  return rows.filter((job) => isOpen(job) && !fresh.has(keyOf(job)));
}

/**
 * The selection without rows that are not shown any more. A bulk action must not affect jobs that the
 * user cannot see.
 * @param {ReadonlySet<string>} selection
 * @param {JobRow[]} rows
 * @returns {Set<string>}
 */
export function visibleSelection(selection, rows) {
  return new Set(rows.map(keyOf).filter((key) => selection.has(key)));
}
