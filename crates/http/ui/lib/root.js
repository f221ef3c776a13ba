// Where the server is. It may be below a proxy prefix, so every URL is computed from the address of
// this module: `ROOT/ui/assets/HASH/lib/root.js`.

/** The root URL of the server; ends with a slash. */
export const rootUrl = new URL('../../../../', import.meta.url);

/** The URL of the web UI's first page; ends with a slash. */
export const uiUrl = new URL('../../../', import.meta.url);

/**
 * The prefix of every name that the UI stores in the browser. Two servers below different prefixes of
 * one origin must not read each other's data.
 */
export const storagePrefix = `tidegate:${rootUrl.pathname}:`;

/**
 * Whether a URL is at or below another one. Below a proxy prefix, other applications share the origin.
 * @param {URL} url
 * @param {URL} root its path ends with a slash
 */
export function isBelow(url, root) {
  return url.origin === root.origin && url.pathname.startsWith(root.pathname) && !climbs(url.pathname);
}

/**
 * Whether a path leaves its folder for a proxy that decodes it first. The URL parser has removed the dots
 * that are not hidden behind an encoded slash.
 * @param {string} path
 */
function climbs(path) {
  return path.replace(/%2f|%5c/gi, '/').replace(/%2e/gi, '.').split('/').includes('..');
}
