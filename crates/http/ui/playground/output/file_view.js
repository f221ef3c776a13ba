// A file of the output: a preview, if its type has one, and the download.

import { html, useState } from '../../lib/html.js';
import { isBelow, rootUrl } from '../../lib/root.js';
import { Icon } from '../../components/icon.js';
import { showToast } from '../../components/toast.js';
import { download } from './download.js';

/** @typedef {import('./kinds.js').OutputFile} OutputFile */

/**
 * @param {{file: OutputFile, label?: string}} props
 */
export function FileView({ file, label }) {
  const [broken, setBroken] = useState(false);
  const title = label ?? file.name;
  return html`<figure class="file-view file-${broken ? 'file' : file.kind}">
    ${broken ? null : html`<${Preview} file=${file} title=${title} onBroken=${() => setBroken(true)} />`}
    <figcaption><${Icon} name="file" /><span class="file-name" title=${file.name}>${file.name}</span>${broken ? html`<span class="muted">no preview</span>` : null}<${SaveButton} file=${file} /></figcaption>
  </figure>`;
}

/**
 * @param {{file: OutputFile, title: string, onBroken: () => void}} props
 */
function Preview({ file, title, onBroken }) {
  switch (file.kind) {
    case 'image':
      return html`<div class="image-frame"><img src=${file.url} alt="Output ${title}" decoding="async" referrerpolicy="no-referrer" onError=${onBroken} /></div>`;
    case 'audio':
      return html`<audio controls preload="metadata" src=${file.url} aria-label="Output ${title}" onError=${onBroken}></audio>`;
    case 'video':
      return html`<video controls preload="metadata" src=${file.url} aria-label="Output ${title}" onError=${onBroken}></video>`;
    default:
      return null;
  }
}

/**
 * @param {{file: OutputFile}} props
 */
function SaveButton({ file }) {
  // The page may show files of the files store, but reads only those of its own server.
  if (isElsewhere(file)) return html`<a class="button small" href=${file.url} target="_blank" rel="noopener noreferrer"><${Icon} name="link" />Open</a>`;
  const save = () => download(file).catch((error) => showToast(`The file could not be read: ${error.message}`, 'bad'));
  return html`<button type="button" class="button small" onClick=${save} aria-label="Download ${file.name}"><${Icon} name="download" /><span class="save-label">Download</span></button>`;
}

/** @param {OutputFile} file */
function isElsewhere({ url, foreign }) {
  return foreign || (/^https?:/i.test(url) && !isBelow(new URL(url), rootUrl));
}
