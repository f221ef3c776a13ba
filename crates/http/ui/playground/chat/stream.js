// A conversation with OpenAI's API: sends the messages and reads the answer as it is produced.

import { ApiError, messageOf, request } from '../../lib/api.js';
import { EventParser, textChunks } from '../../lib/sse.js';
import { whenStreamSlotIsFree } from '../../lib/stream_slots.js';

/** @typedef {{role: 'system' | 'user' | 'assistant', content: string}} Message */

/**
 * The text that a chunk adds. Fails if the chunk is an error.
 * @param {string} data
 * @returns {string}
 */
export function deltaOf(data) {
  if (data === '[DONE]') return '';
  const chunk = JSON.parse(data);
  if (chunk.error !== undefined) throw new ApiError(0, messageOf(chunk) ?? 'The model failed.');
  const content = chunk.choices?.[0]?.delta?.content;
  return typeof content === 'string' ? content : '';
}

/**
 * Streams the answer, as soon as few enough other tabs stream.
 * @param {{model: string, messages: Message[], options: Record<string, number>, signal: AbortSignal, onText: (text: string) => void}} chat
 */
export async function streamChat(chat) {
  await whenStreamSlotIsFree(() => readAnswer(chat), { signal: chat.signal, onWait: () => {} });
}

/** @param {Parameters<typeof streamChat>[0]} chat */
async function readAnswer({ model, messages, options, signal, onText }) {
  const response = await request('v1/chat/completions', { method: 'POST', json: { model, messages, stream: true, ...options }, headers: { Accept: 'text/event-stream' }, signal });
  const parser = new EventParser();
  for await (const text of textChunks(response)) {
    for (const { data } of parser.push(text)) {
      const delta = deltaOf(data);
      if (delta !== '') onText(delta);
    }
  }
}
