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
