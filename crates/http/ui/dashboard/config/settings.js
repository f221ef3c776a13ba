// The settings of the configuration page: search and order.

/** @typedef {{name: string, flag?: string | null, env?: string | null, value: string | null, origin: string}} Setting */

/**
 * Whether the operator set the value.
 * @param {Setting} setting
 * @returns {boolean}
 */
export function isChanged(setting) {
  return setting.origin !== 'default';
}

/**
 * The settings that contain every word of the search, in their order.
 * @param {Setting[]} settings
 * @param {string} search
 * @param {boolean} changedOnly
 * @returns {Setting[]}
 */
export function findSettings(settings, search, changedOnly) {
  const words = search.toLowerCase().split(/\s+/);
  const text = (/** @type {Setting} */ setting) => [setting.name, setting.flag, setting.env, setting.value, setting.origin].join(' ').toLowerCase();
  return settings.filter((setting) => (!changedOnly || isChanged(setting)) && words.every((word) => text(setting).includes(word)));
}
