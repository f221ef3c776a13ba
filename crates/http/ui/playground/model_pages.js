// The pages of models: the list, and the playground of one.
import { html } from '../lib/html.js';
import { Empty } from '../components/notes.js';

export function HomePage() {
  return html`<${Empty} title="This page is not built yet" />`;
}

export function ModelPage() {
  return html`<${Empty} title="This page is not built yet" />`;
}
