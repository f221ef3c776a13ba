// What runs only while the tab is visible. Hidden tabs give their connections to the visible one.

/**
 * Runs a task while the document is visible; aborts it when the tab is hidden, and starts it again.
 * @param {AbortSignal} signal ends it for good
 * @param {(signal: AbortSignal) => Promise<void>} run
 */
export function whileVisible(signal, run) {
  /** @type {AbortController | null} */
  let current = null;
  const update = () => {
    if (document.hidden) {
      current?.abort();
      current = null;
    } else if (current === null && !signal.aborted) {
      current = new AbortController();
      void run(AbortSignal.any([signal, current.signal]));
    }
  };
  document.addEventListener('visibilitychange', update, { signal });
  update();
}

/**
 * Calls a function at the next frame. Hidden tabs have no frames, so they call it at once.
 * @param {() => void} run
 */
export function atNextFrame(run) {
  if (document.hidden) setTimeout(run, 0);
  else requestAnimationFrame(run);
}
