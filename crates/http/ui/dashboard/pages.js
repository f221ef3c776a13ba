// The pages of the operations dashboard, by the name in their URL.

import { html } from '../lib/html.js';
import { Empty } from '../components/notes.js';

function Later() {
  return html`<${Empty} title="This page is not built yet" />`;
}

export const pages = { overview: Later, jobs: Later, deliveries: Later, config: Later, docs: Later };
