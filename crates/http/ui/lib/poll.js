// Repeats a request while the page is visible.

import { useEffect, useRef } from './html.js';

/**
 * Calls a function at an interval, while the document is visible; at once when it becomes visible again.
 * A call starts only after the previous one has ended.
 * @param {() => Promise<void>} run
 * @param {number} intervalMs
 * @param {readonly unknown[]} inputs starts again when they change
 */
export function usePolling(run, intervalMs, inputs) {
  const latest = useRef(run);
  latest.current = run;
  useEffect(() => {
    let stopped = false;
    let running = false;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    const tick = async () => {
      clearTimeout(timer);
      if (stopped || running || document.hidden) return;
      running = true;
      await latest.current();
      running = false;
      if (!stopped) timer = setTimeout(tick, intervalMs);
    };
    void tick();
    document.addEventListener('visibilitychange', tick);
    return () => {
      stopped = true;
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', tick);
    };
  }, inputs);
}
