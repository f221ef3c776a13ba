// What a conversation sends: its messages and options.

/** @typedef {import('./stream.js').Message} Message */

/** The settings of the chat view, as the user typed them. @typedef {{system: string, temperature: string, max_tokens: string}} ChatSettings */

/**
 * The options that are set, and what is wrong with the others.
 * @param {Pick<ChatSettings, 'temperature' | 'max_tokens'>} settings
 * @returns {{options: Record<string, number>, errors: Record<string, string>}}
 */
export function optionsOf({ temperature, max_tokens }) {
  /** @type {Record<string, number>} */
  const options = {};
  /** @type {Record<string, string>} */
  const errors = {};
  for (const [name, text] of Object.entries({ temperature, max_tokens })) {
    if (text.trim() === '') continue;
    const value = Number(text);
    const isValid = name === 'max_tokens' ? Number.isSafeInteger(value) : Number.isFinite(value);
    if (isValid) options[name] = value;
    else errors[name] = name === 'max_tokens' ? 'Enter an integer.' : 'Enter a number.';
  }
  return { options, errors };
}

/**
 * @param {string} system
 * @param {Message[]} messages
 * @returns {Message[]}
 */
export function withSystem(system, messages) {
  return system.trim() === '' ? messages : [{ role: 'system', content: system }, ...messages];
}

/**
 * The messages of the last request: up to the last one of the user. Before the first one, an example.
 * @param {Message[]} messages
 * @returns {Message[]}
 */
export function lastRequest(messages) {
  const last = messages.findLastIndex(({ role }) => role === 'user');
  return last < 0 ? [...messages, { role: 'user', content: 'Hello' }] : messages.slice(0, last + 1);
}
