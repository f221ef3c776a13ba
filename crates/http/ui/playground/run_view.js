// One run as the page shows it: the job's document, its output and logs so far. Written by the streams
// in `run_streams.js`, read by components.

import { useEffect, useState } from '../lib/html.js';
import { atNextFrame } from '../lib/visibility.js';

/** @typedef {import('../lib/types.d.ts').Job} Job */

const ENDED = ['succeeded', 'failed', 'canceled', 'aborted'];

/**
 * @param {string | undefined} status
 */
export function isEnded(status) {
  return status !== undefined && ENDED.includes(status);
}

/** The state of a run. Components are called at most once per frame. */
export class RunView {
  constructor() {
    /** @type {Partial<Job>} */
    this.job = {};
    /** The values of the output so far. @type {unknown[]} */
    this.parts = [];
    /** The values that are texts, one after the other. */
    this.text = '';
    this.logs = '';
    /** Grows when what was shown is void. */
    this.generation = 0;
    /** How often the job began again while this page was open. */
    this.restarts = 0;
    /** The request that could not be sent or followed. @type {Error | null} */
    this.error = null;
    /** @type {Set<() => void>} */
    this.listeners = new Set();
    this.scheduled = false;
  }

  get ended() {
    return this.error !== null || isEnded(this.job.status);
  }

  /** Whether the run is a request of its own: a server without job pages ran it. */
  get isDirect() {
    return this.job.status !== undefined && this.job.account === undefined;
  }

  /** The state for the badge. A job may go on after the connection to it is lost; a request cannot. */
  get shownStatus() {
    if (this.error === null || this.job.status === undefined) return this.job.status;
    return this.isDirect ? 'failed' : 'unknown';
  }

  /** The output, as the model returned it. */
  get output() {
    if (this.job.output_is_list === true) return this.parts;
    // Until the end, an iterator's first value is not told from a single one.
    return this.parts.length > 1 ? this.parts : this.parts[0];
  }

  /**
   * Takes the job's document. Its output and logs replace those of the stream.
   * @param {Partial<Job>} document
   */
  takeDocument(document) {
    const { output, logs, ...job } = document;
    this.job = { ...this.job, ...job };
    if (output !== undefined && output !== null) {
      const list = document.output_is_list === true && Array.isArray(output) ? output : [output];
      if (!startsWith(list, this.parts)) this.clearOutput();
      for (let index = this.parts.length; index < list.length; index += 1) this.takeOutput(index, list[index]);
    }
    if (logs !== undefined && logs !== this.logs) {
      if (!logs.startsWith(this.logs)) this.generation += 1;
      this.logs = logs;
    }
    this.changed();
  }

  /**
   * @param {number} index
   * @param {unknown} value
   */
  takeOutput(index, value) {
    if (index < this.parts.length) return; // A resumed stream may repeat values.
    this.parts.push(value);
    if (typeof value === 'string') this.text += value;
    this.changed();
  }

  /** @param {string} text */
  takeLogs(text) {
    this.logs += text;
    this.changed();
  }

  clearOutput() {
    this.parts = [];
    this.text = '';
    this.generation += 1;
    this.changed();
  }

  /** What was received is void: the stream begins again. */
  clear() {
    this.logs = '';
    this.clearOutput();
  }

  /** @param {Error} error */
  fail(error) {
    this.error = error;
    this.changed();
  }

  changed() {
    if (this.scheduled) return;
    this.scheduled = true;
    atNextFrame(() => {
      this.scheduled = false;
      for (const listener of this.listeners) listener();
    });
  }
}

/**
 * @param {unknown[]} list
 * @param {unknown[]} start
 */
function startsWith(list, start) {
  return start.length <= list.length && start.every((value, index) => value === list[index]);
}

/**
 * Renders the component again when the run changes, once per frame.
 * @param {RunView | null} run
 */
export function useRun(run) {
  const [, setVersion] = useState(0);
  useEffect(() => {
    if (run === null) return undefined;
    const update = () => setVersion((version) => version + 1);
    run.listeners.add(update);
    update();
    return () => {
      run.listeners.delete(update);
    };
  }, [run]);
}
