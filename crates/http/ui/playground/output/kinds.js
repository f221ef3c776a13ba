// What an output value is, for its preview. Output is hostile: a preview is chosen by our own list of
// media types, and only from places that the page may load from.

import { isBelow } from '../../lib/root.js';

/** @typedef {'image' | 'audio' | 'video' | 'file'} FileKind */

/**
 * A file in the output.
 * @typedef {object} OutputFile
 * @property {string} url
 * @property {FileKind} kind
 * @property {string} name for the download
 * @property {boolean} foreign the page may not load it
 */

// Raster images, and SVG, which is inert inside `<img>`.
const IMAGES = ['png', 'jpeg', 'jpg', 'gif', 'webp', 'avif', 'bmp', 'svg', 'svg+xml', 'x-icon', 'ico'];
const AUDIO = ['mpeg', 'mp3', 'wav', 'wave', 'x-wav', 'ogg', 'oga', 'flac', 'x-flac', 'm4a', 'aac', 'opus', 'mp4', 'webm'];
const VIDEO = ['mp4', 'webm', 'ogv', 'ogg', 'mov', 'quicktime', 'm4v'];
const AUDIO_SUFFIXES = ['mp3', 'wav', 'ogg', 'oga', 'flac', 'm4a', 'aac', 'opus'];
const VIDEO_SUFFIXES = ['mp4', 'webm', 'ogv', 'mov', 'm4v'];

/**
 * The file that a text refers to, or null if it is a text.
 * @param {unknown} value
 * @param {{isFile: boolean, places: string[]}} context `isFile`: the schema says so; `places`: the URLs below which the page may load files
 * @returns {OutputFile | null}
 */
export function fileOf(value, { isFile, places }) {
  if (typeof value !== 'string') return null;
  if (/^data:/i.test(value)) return dataFile(value);
  const url = httpUrl(value);
  if (url === null) return null;
  const foreign = !places.some((place) => isBelow(url, new URL(place)));
  // A text that happens to be an address of another server is a text, unless the schema says file.
  if (!isFile && (foreign || !/\/files\//.test(url.pathname))) return null;
  const name = decodeName(url.pathname.split('/').at(-1) ?? '');
  return { url: url.href, kind: foreign ? 'file' : suffixKind(name), name: name || 'output', foreign };
}

/**
 * @param {string} value
 * @returns {OutputFile | null}
 */
function dataFile(value) {
  const comma = value.indexOf(',');
  if (comma < 0 || comma > 200) return null;
  const [type, subtype = ''] = value.slice(5, comma).split(';')[0].trim().toLowerCase().split('/');
  const suffix = /^[a-z0-9]{1,8}$/.test(subtype) ? subtype : { 'svg+xml': 'svg' }[subtype] ?? 'bin';
  return { url: value, kind: mediaKind(type, subtype), name: `output.${suffix}`, foreign: false };
}

/**
 * @param {string} type
 * @param {string} subtype
 * @returns {FileKind}
 */
function mediaKind(type, subtype) {
  if (type === 'image' && IMAGES.includes(subtype)) return 'image';
  if (type === 'audio' && AUDIO.includes(subtype)) return 'audio';
  if (type === 'video' && VIDEO.includes(subtype)) return 'video';
  return 'file';
}

/**
 * @param {string} name
 * @returns {FileKind}
 */
function suffixKind(name) {
  const suffix = name.split('.').at(-1)?.toLowerCase() ?? '';
  if (IMAGES.includes(suffix)) return 'image';
  if (AUDIO_SUFFIXES.includes(suffix)) return 'audio';
  if (VIDEO_SUFFIXES.includes(suffix)) return 'video';
  return 'file';
}

/**
 * The URL of a text, if it is an address that a link may have: http or https, nothing else.
 * @param {string} text
 * @returns {URL | null}
 */
export function httpUrl(text) {
  if (text.length > 8192 || !/^https?:\/\/\S+$/i.test(text)) return null;
  try {
    const url = new URL(text);
    return url.protocol === 'http:' || url.protocol === 'https:' ? url : null;
  } catch {
    return null;
  }
}

/** @param {string} name */
function decodeName(name) {
  try {
    // Path separators and control characters would change where the browser saves the file.
    return decodeURIComponent(name).replace(/[/\\\p{C}]/gu, '_').slice(0, 120);
  } catch {
    return name;
  }
}

/**
 * How the whole output is shown.
 * @param {unknown} value
 * @param {any} schema `components.schemas.Output`
 * @param {string[]} places
 * @returns {'nothing' | 'text' | 'file' | 'files' | 'items' | 'record' | 'json'}
 */
export function outputKind(value, schema, places) {
  if (value === null || value === undefined) return 'nothing';
  if (Array.isArray(value)) {
    if (value.length === 0) return 'json';
    if (value.every((entry) => typeof entry === 'string')) {
      const isFile = isFileSchema(schema?.items);
      const files = value.map((entry) => fileOf(entry, { isFile, places }));
      if (files.every((file) => file !== null)) return 'files';
      if (files.some((file) => file !== null)) return 'items';
      return isConcatenated(schema) ? 'text' : 'items';
    }
    return 'json';
  }
  if (typeof value === 'string') return fileOf(value, { isFile: isFileSchema(schema), places }) === null ? 'text' : 'file';
  if (typeof value === 'object') return hasFiles(value, schema, places) ? 'record' : 'json';
  return 'text';
}

/** @param {any} schema */
export function isFileSchema(schema) {
  return schema?.type === 'string' && schema?.format === 'uri';
}

/**
 * Whether the parts of an output form one text.
 * @param {any} schema
 */
export function isConcatenated(schema) {
  return schema?.type === 'array' && schema?.['x-cog-array-display'] === 'concatenate';
}

/**
 * @param {object} value
 * @param {any} schema
 * @param {string[]} places
 */
function hasFiles(value, schema, places) {
  return Object.entries(value).some(([name, entry]) => {
    const isFile = isFileSchema(schema?.properties?.[name]);
    return fileOf(entry, { isFile, places }) !== null;
  });
}
