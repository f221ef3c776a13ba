// What a webhook message says about itself.

/** @typedef {{at: string, took_s: number, status?: number, error?: string}} Attempt */

/**
 * A message as `GET /admin/deliveries` lists it. Fields without a value are absent.
 * @typedef {object} Delivery
 * @property {string} id
 * @property {string} [account]
 * @property {string} job
 * @property {string} [model]
 * @property {string} event
 * @property {string} host
 * @property {'sending' | 'delivered' | 'retrying' | 'failed'} state
 * @property {string} created_at
 * @property {string} [next_attempt_at]
 * @property {string} [given_up] why
 * @property {number} [earlier_attempts] those of earlier server processes
 * @property {Attempt[]} attempts
 */

/**
 * How often the message was sent.
 * @param {Delivery} message
 * @returns {number}
 */
export function attemptCount(message) {
  return message.attempts.length + (message.earlier_attempts ?? 0);
}

/**
 * Whether the server can send the message again. It keeps only the last message of a job.
 * @param {Delivery} message
 * @returns {boolean}
 */
export function canReplay(message) {
  return message.event === 'completed' && message.state !== 'sending';
}

/**
 * The result of the last attempt as text.
 * @param {Delivery} message
 * @returns {string}
 */
export function lastResult(message) {
  if (message.given_up) return message.given_up;
  const last = message.attempts.at(-1);
  if (last === undefined) return '–';
  return last.status === undefined ? (last.error ?? '–') : `status ${last.status}`;
}
