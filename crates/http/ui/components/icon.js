// The icons of the UI, drawn as strokes on a 24 px grid.

import { html } from '../lib/html.js';

/** @type {Record<string, string>} */
const PATHS = {
  play: 'M7 5l12 7-12 7z',
  stop: 'M7 7h10v10H7z',
  copy: 'M9 9h10v11H9zM5 15V4h10',
  check: 'M5 12.5l4.5 4.5L19 7.5',
  cross: 'M6 6l12 12M18 6L6 18',
  plus: 'M12 5v14M5 12h14',
  download: 'M12 4v11m-4.5-4.5L12 15l4.5-4.5M5 20h14',
  upload: 'M12 16V5M7.5 9.5L12 5l4.5 4.5M5 20h14',
  link: 'M10 14a4 4 0 0 0 5.7 0l3-3a4 4 0 0 0-5.7-5.7l-1 1M14 10a4 4 0 0 0-5.7 0l-3 3A4 4 0 0 0 11 18.700l1-1',
  sun: 'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.400M17.6 17.600L19 19M5 19l1.4-1.400M17.6 6.400L19 5',
  moon: 'M20 14.500A8 8 0 0 1 9.5 4 8 8 0 1 0 20 14.500z',
  contrast: 'M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 3v18',
  search: 'M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16 16l4.5 4.5',
  chevron: 'M9 6l6 6-6 6',
  warning: 'M12 4L2.5 20h19zM12 10v5M12 17.500v.5',
  info: 'M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 11v5M12 8v.5',
  file: 'M6 3h8l4 4v14H6zM14 3v4h4',
  refresh: 'M20 11a8 8 0 1 0-2.3 6.300M20 5v6h-6',
  user: 'M12 4a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM4 20c1-4 4-5 8-5s7 1 8 5',
  code: 'M8 7l-5 5 5 5M16 7l5 5-5 5',
  send: 'M4 12l16-8-5 16-4-7z',
  box: 'M12 3l8 4.500v9L12 21l-8-4.500v-9zM4 7.500l8 4.5 8-4.500M12 12v9',
};

/**
 * @param {{name: string, label?: string, class?: string}} props without a label the icon is decoration
 */
export function Icon({ name, label, class: className = '' }) {
  return html`<svg class="icon ${className}" viewBox="0 0 24 24" role=${label ? 'img' : null} aria-label=${label} aria-hidden=${label ? null : 'true'} focusable="false"><path d=${PATHS[name]} /></svg>`;
}
