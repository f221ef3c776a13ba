// The request of the form as code.

import { html, useState } from '../lib/html.js';
import { rootUrl } from '../lib/root.js';
import { useSession } from '../lib/session.js';
import { CodeBlock } from '../components/code_block.js';
import { samplesOf } from './code/samples.js';

/**
 * @param {{detail: import('../lib/types.d.ts').ModelDetail, values: Record<string, unknown>, conversation?: import('./code/samples.js').Conversation | null}} props
 *   `conversation` is that of the chat view
 */
export function CodePanel({ detail, values, conversation = null }) {
  const session = useSession();
  const [chosen, setChosen] = useState('curl');
  const samples = samplesOf({ root: rootUrl.href, model: detail.name, run: detail.run, values, apis: session.apis, chat: detail.chat, conversation });
  const sample = samples.find(({ id }) => id === chosen) ?? samples[0];
  return html`<div class="stack code-panel">
    <div class="row" role="group" aria-label="Language">
      ${samples.map(({ id, label }) => html`<button type="button" key=${id} class="chip" aria-pressed=${id === sample.id ? 'true' : 'false'} onClick=${() => setChosen(id)}>${label}</button>`)}
    </div>
    <${CodeBlock} label="${sample.label} code" text=${sample.text} />
    <p class="hint">Set <code>TIDEGATE_API_TOKEN</code> in the environment${session.tokens ? '' : '; this server accepts requests without a token'}.</p>
  </div>`;
}
