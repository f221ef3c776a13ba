// How long ago a time was, as time goes on.

import { html, useEffect, useState } from '../lib/html.js';
import { ago } from '../lib/format.js';

const TICK_MS = 1000;

/**
 * @param {{at: string}} props RFC 3339
 */
export function Ago({ at }) {
  const [text, setText] = useState(() => ago(at));
  useEffect(() => {
    setText(ago(at));
    // The text changes seldom, and the component renders only when it does.
    const timer = setInterval(() => setText(ago(at)), TICK_MS);
    return () => clearInterval(timer);
  }, [at]);
  return html`<span>${text}</span>`;
}
