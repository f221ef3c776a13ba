// A file: chosen, dropped, pasted, or given by its URL.

import { html, useEffect, useRef, useState } from '../../../lib/html.js';
import { bytes } from '../../../lib/format.js';
import { Icon } from '../../../components/icon.js';
import { fileOf } from '../../output/kinds.js';
import { rootUrl } from '../../../lib/root.js';
import { LocalFile } from '../values.js';
import { attributes } from './attributes.js';

/** @typedef {import('./control.js').ControlProps} ControlProps */

/** @param {ControlProps} props */
export function FileControl(props) {
  const { field, id, value, onChange, label } = props;
  const [over, setOver] = useState(false);
  const picker = useRef(/** @type {HTMLInputElement | null} */ (null));
  const take = (/** @type {FileList | null | undefined} */ files) => {
    if (files?.[0]) onChange(new LocalFile(files[0]));
  };
  const drop = (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    setOver(false);
    take(event.dataTransfer?.files);
  };
  const hover = (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    setOver(true);
  };
  const paste = (/** @type {ClipboardEvent} */ event) => {
    if (!event.clipboardData?.files.length) return;
    // A URL that is pasted may have an image beside it.
    if (event.target instanceof HTMLInputElement && event.clipboardData.types.includes('text/plain')) {
      event.stopPropagation();
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    take(event.clipboardData.files);
  };
  const typed = (/** @type {InputEvent} */ event) => {
    const text = /** @type {HTMLInputElement} */ (event.target).value.trim();
    onChange(text === '' ? undefined : text);
  };
  const isLocal = value instanceof LocalFile;
  const isInline = typeof value === 'string' && /^data:/i.test(value);
  return html`<div class="file-control ${over ? 'over' : ''}" onDrop=${drop} onDragOver=${hover} onDragLeave=${() => setOver(false)} onPaste=${paste}>
    <div class="joined">
      ${isLocal || isInline
        ? html`<${Chosen} value=${value} id=${id} onRemove=${() => onChange(undefined)} />`
        : html`<input type="text" inputmode="url" spellcheck=${false} autocomplete="off" ...${attributes(props)} value=${typeof value === 'string' ? value : ''} placeholder=${typeof field.defaultValue === 'string' ? field.defaultValue : 'URL, or drop or paste a file'} onInput=${typed} />`}
      <button type="button" class="button" onClick=${() => picker.current?.click()} aria-label="Choose a file for ${label ?? field.title}"><${Icon} name="upload" />Choose</button>
    </div>
    <input type="file" hidden ref=${picker} accept=${field.accept} data-input=${field.name} onChange=${(/** @type {Event} */ event) => take(/** @type {HTMLInputElement} */ (event.target).files)} />
    <${InputPreview} value=${value} title=${field.title} />
  </div>`;
}

/**
 * @param {{value: unknown, id: string, onRemove: () => void}} props
 */
function Chosen({ value, id, onRemove }) {
  const name = value instanceof LocalFile ? value.file.name : `inline ${String(value).slice(5, 60).split(/[;,]/)[0]}`;
  const size = value instanceof LocalFile ? value.file.size : String(value).length;
  return html`<div class="chosen"><${Icon} name="file" /><span class="file-name" title=${name}>${name}</span><span class="muted">${bytes(size)}</span>
    <button type="button" class="button quiet small icon-only" id=${id} aria-label="Remove ${name}" onClick=${onRemove}><${Icon} name="cross" /></button></div>`;
}

const PREVIEWS = /^(image\/(png|jpeg|gif|webp|avif|bmp|svg\+xml)|audio\/|video\/)/;

/**
 * @param {{value: unknown, title: string}} props
 */
function InputPreview({ value, title }) {
  const url = usePreviewUrl(value);
  if (url === null) return null;
  if (url.type.startsWith('image/')) return html`<div class="input-preview"><img src=${url.href} alt="Preview of ${title}" /></div>`;
  if (url.type.startsWith('audio/')) return html`<audio controls src=${url.href} aria-label="Preview of ${title}"></audio>`;
  return html`<div class="input-preview"><video controls src=${url.href} aria-label="Preview of ${title}"></video></div>`;
}

/**
 * The URL of a preview, or null.
 * @param {unknown} value
 * @returns {{href: string, type: string} | null}
 */
function usePreviewUrl(value) {
  const [url, setUrl] = useState(/** @type {{href: string, type: string} | null} */ (null));
  useEffect(() => {
    setUrl(null);
    if (typeof value === 'string') {
      const file = fileOf(value, { isFile: true, places: [rootUrl.href] });
      if (file !== null && !file.foreign && file.kind !== 'file') setUrl({ href: file.url, type: `${file.kind}/` });
      return undefined;
    }
    if (!(value instanceof LocalFile) || !PREVIEWS.test(value.file.type)) return undefined;
    return localPreview(value.file, setUrl);
  }, [value]);
  return url;
}

/**
 * @param {File} file
 * @param {(url: {href: string, type: string}) => void} onUrl
 */
function localPreview(file, onUrl) {
  if (file.type === 'image/svg+xml') {
    // A blob: URL of an SVG would run its scripts with the rights of this page, if it is opened.
    const reader = new FileReader();
    reader.onload = () => onUrl({ href: String(reader.result), type: file.type });
    reader.readAsDataURL(file);
    return () => reader.abort();
  }
  const href = URL.createObjectURL(file);
  onUrl({ href, type: file.type });
  return () => URL.revokeObjectURL(href);
}
