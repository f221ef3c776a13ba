// The page of one job.
import { html } from '../lib/html.js';
import { Empty } from '../components/notes.js';

export function JobPage() {
  return html`<${Empty} title="This page is not built yet" />`;
}
