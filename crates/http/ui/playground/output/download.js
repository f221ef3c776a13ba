// Saves a file of the output. Always as `application/octet-stream`, so that no browser opens it as a
// document with the rights of this page.

import { request } from '../../lib/api.js';

/** @typedef {import('./kinds.js').OutputFile} OutputFile */

/** @param {OutputFile} file */
export async function download(file) {
  const parts = /^data:/i.test(file.url) ? [decodeDataUri(file.url)] : [await (await request(file.url)).arrayBuffer()];
  saveBlob(new Blob(parts, { type: 'application/octet-stream' }), file.name);
}

/**
 * @param {Blob} blob
 * @param {string} name
 */
function saveBlob(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  // The browser reads the blob after the click returns.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/**
 * The bytes of a data URI.
 * @param {string} uri
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function decodeDataUri(uri) {
  const comma = uri.indexOf(',');
  const body = uri.slice(comma + 1);
  if (!/;\s*base64\s*$/i.test(uri.slice(0, comma))) return percentDecoded(body);
  const binary = atob(body.includes('%') ? decodeURIComponent(body) : body);
  return Uint8Array.from(binary, (character) => character.charCodeAt(0));
}

/**
 * @param {string} text
 * @returns {Uint8Array<ArrayBuffer>}
 */
function percentDecoded(text) {
  const bytes = new TextEncoder().encode(text);
  const out = [];
  for (let at = 0; at < bytes.length; at += 1) {
    const hex = bytes[at] === 0x25 ? String.fromCharCode(...bytes.subarray(at + 1, at + 3)) : '';
    if (/^[0-9a-f]{2}$/i.test(hex)) {
      out.push(Number.parseInt(hex, 16));
      at += 2;
    } else {
      out.push(bytes[at]);
    }
  }
  return Uint8Array.from(out);
}
