// A document of the server as the state of a component.

import { requestJson } from './api.js';
import { useCallback, useEffect, useState } from './html.js';

/**
 * Reads a document when the component appears and when the path changes.
 * @param {string | null} path null: no request
 * @returns {{data: any, error: Error | null, loading: boolean, reload: () => void}}
 */
export function useRequest(path) {
  const [state, setState] = useState({ path: /** @type {string | null} */ (null), data: /** @type {any} */ (null), error: /** @type {Error | null} */ (null) });
  const [generation, setGeneration] = useState(0);
  useEffect(() => {
    if (path === null) return undefined;
    const stopping = new AbortController();
    requestJson(path, { signal: stopping.signal })
      .then((data) => setState({ path, data, error: null }))
      .catch((error) => {
        if (!stopping.signal.aborted) setState({ path, data: null, error });
      });
    return () => stopping.abort();
  }, [path, generation]);
  const reload = useCallback(() => setGeneration((value) => value + 1), []);
  const current = state.path === path;
  return { data: current ? state.data : null, error: current ? state.error : null, loading: path !== null && !current, reload };
}
