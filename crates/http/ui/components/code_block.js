// A block of code or plain text that can be copied.

import { html } from '../lib/html.js';
import { CopyButton } from './copy_button.js';

/**
 * @param {{text: string, label: string}} props the label names the block for screen readers
 */
export function CodeBlock({ text, label }) {
  return html`<div class="code-block"><pre tabindex="0" role="region" aria-label=${label}><code>${text}</code></pre><${CopyButton} text=${text} label="Copy ${label}" /></div>`;
}
