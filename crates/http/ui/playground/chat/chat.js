// The chat view of chat models. The conversation lives in this tab only.

import { html, useEffect, useLayoutEffect, useRef, useState } from '../../lib/html.js';
import { Markdown } from '../../lib/markdown.js';
import { atNextFrame } from '../../lib/visibility.js';
import { CopyButton } from '../../components/copy_button.js';
import { Empty, ErrorNote } from '../../components/notes.js';
import { Icon } from '../../components/icon.js';
import { StreamText } from '../../components/stream_text.js';
import { CodePanel } from '../code_panel.js';
import { lastRequest, optionsOf, withSystem } from './conversation.js';
import { streamChat } from './stream.js';

/** @typedef {import('./stream.js').Message} Message */
/** @typedef {import('./conversation.js').ChatSettings} ChatSettings */
/** @typedef {import('../../lib/types.d.ts').ModelDetail} ModelDetail */

/**
 * @param {{detail: ModelDetail}} props
 */
export function Chat({ detail }) {
  const [settings, setSettings] = useState({ system: '', temperature: '', max_tokens: '' });
  const [draft, setDraft] = useState('');
  const [showCode, setShowCode] = useState(false);
  const chat = useConversation(detail.name);
  const end = useRef(/** @type {HTMLElement | null} */ (null));

  const messages = withSystem(settings.system, chat.messages);
  const { options, errors } = optionsOf(settings);
  const send = () => {
    if (draft.trim() === '' || chat.answer !== null) return;
    const invalid = Object.keys(errors)[0];
    if (invalid !== undefined) {
      document.getElementById(`chat-${invalid}`)?.focus();
      return;
    }
    setDraft('');
    void chat.send(settings.system, draft, options);
  };
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  };
  useEffect(() => {
    const escape = (/** @type {KeyboardEvent} */ event) => {
      if (event.key === 'Escape') chat.stop();
    };
    document.addEventListener('keydown', escape);
    return () => document.removeEventListener('keydown', escape);
  });
  useLayoutEffect(() => {
    const list = end.current;
    if (list !== null) list.scrollTop = list.scrollHeight;
  }, [chat.messages.length, chat.answer]);

  return html`<div class="chat">
    <section class="card chat-card" aria-label="Conversation">
      <div class="messages" ref=${end} tabindex="0" role="log" aria-live="off" aria-label="Messages">
        ${chat.messages.length === 0 && chat.answer === null ? html`<${Empty} icon="send" title="Start a conversation">The answer appears as the model writes it.</${Empty}>` : null}
        ${chat.messages.map((message, index) => html`<${Bubble} key=${index} message=${message} />`)}
        ${chat.answer === null ? null : html`<div class="message assistant"><span class="message-role">assistant</span>${chat.answer === '' ? html`<span class="spinner" aria-hidden="true"></span>` : html`<${StreamText} text=${chat.answer} label="Answer" />`}</div>`}
        ${chat.error === null ? null : html`<${ErrorNote} error=${chat.error} />`}
      </div>
      <form class="composer" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); send(); }}>
        <label class="visually-hidden" for="chat-message">Message</label>
        <textarea id="chat-message" class="grows" rows="1" placeholder="Message; Enter sends, Shift+Enter adds a line" value=${draft} onInput=${(/** @type {InputEvent} */ event) => setDraft(/** @type {HTMLTextAreaElement} */ (event.target).value)} onKeyDown=${press}></textarea>
        ${chat.answer === null
          ? html`<button type="submit" class="button primary"><${Icon} name="send" />Send</button>`
          : html`<button type="button" class="button danger" onClick=${chat.stop}><${Icon} name="stop" />Stop</button>`}
      </form>
      <p class="visually-hidden" role="status">${chat.answer !== null ? 'The model writes an answer' : chat.error !== null ? `Error: ${chat.error.message}` : chat.messages.length > 0 ? 'The answer is complete' : ''}</p>
    </section>
    <aside class="card chat-side">
      <h2>Settings</h2>
      <${Settings} settings=${settings} errors=${errors} onChange=${setSettings} />
      <div class="row">
        <button type="button" class="button small" onClick=${chat.clear} disabled=${chat.messages.length === 0}>New conversation</button>
        <button type="button" class="button small" aria-expanded=${showCode ? 'true' : 'false'} onClick=${() => setShowCode(!showCode)}><${Icon} name="code" />Code</button>
      </div>
      ${showCode ? html`<${CodePanel} detail=${detail} values=${{}} conversation=${{ messages: lastRequest(messages), options }} />` : null}
    </aside>
  </div>`;
}

/**
 * @param {{message: Message}} props
 */
function Bubble({ message }) {
  return html`<div class="message ${message.role}">
    <span class="message-role">${message.role}</span>
    ${message.role === 'assistant' ? html`<${Markdown} text=${message.content} /><${CopyButton} text=${message.content} label="Copy answer" />` : html`<div class="message-text">${message.content}</div>`}
  </div>`;
}

/**
 * @param {{settings: ChatSettings, errors: Record<string, string>, onChange: (settings: ChatSettings) => void}} props
 */
function Settings({ settings, errors, onChange }) {
  const change = (/** @type {keyof ChatSettings} */ name) => (/** @type {InputEvent} */ event) => onChange({ ...settings, [name]: /** @type {HTMLInputElement} */ (event.target).value });
  return html`
    <div class="field"><label for="chat-system">System prompt</label><textarea id="chat-system" class="grows" rows="3" value=${settings.system} placeholder="not set" onInput=${change('system')}></textarea></div>
    <div class="field-pair">
      <${Option} name="temperature" label="Temperature" mode="decimal" text=${settings.temperature} error=${errors.temperature} onInput=${change('temperature')} />
      <${Option} name="max_tokens" label="Max tokens" mode="numeric" text=${settings.max_tokens} error=${errors.max_tokens} onInput=${change('max_tokens')} />
    </div>`;
}

/**
 * @param {{name: string, label: string, mode: string, text: string, error: string | undefined, onInput: (event: InputEvent) => void}} props
 */
function Option({ name, label, mode, text, error, onInput }) {
  const id = `chat-${name}`;
  return html`<div class="field"><label for=${id}>${label}</label><input id=${id} type="text" inputmode=${mode} value=${text} placeholder="not set" aria-invalid=${error === undefined ? null : 'true'} aria-describedby="${id}-error" onInput=${onInput} /><p class="field-error" id="${id}-error">${error}</p></div>`;
}

/**
 * The messages, and the answer that is being written. It is painted once per frame.
 * @param {string} model
 */
function useConversation(model) {
  const [messages, setMessages] = useState(/** @type {Message[]} */ ([]));
  const [answer, setAnswer] = useState(/** @type {string | null} */ (null));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const running = useRef(/** @type {AbortController | null} */ (null));
  useEffect(() => () => running.current?.abort(), []);

  const send = async (/** @type {string} */ system, /** @type {string} */ content, /** @type {Record<string, number>} */ options) => {
    /** @type {Message[]} */
    const asked = [...messages, { role: 'user', content }];
    setMessages(asked);
    setError(null);
    setAnswer('');
    const stopping = new AbortController();
    running.current = stopping;
    let text = '';
    let scheduled = false;
    const onText = (/** @type {string} */ delta) => {
      text += delta;
      if (scheduled) return;
      scheduled = true;
      atNextFrame(() => {
        scheduled = false;
        if (running.current === stopping) setAnswer(text);
      });
    };
    try {
      await streamChat({ model, messages: withSystem(system, asked), options, signal: stopping.signal, onText });
    } catch (cause) {
      if (!stopping.signal.aborted) setError(/** @type {Error} */ (cause));
    }
    if (running.current !== stopping) return;
    running.current = null;
    setAnswer(null);
    if (text !== '') setMessages([...asked, { role: 'assistant', content: text }]);
  };

  const stop = () => running.current?.abort();
  const clear = () => {
    stop();
    running.current = null;
    setMessages([]);
    setAnswer(null);
    setError(null);
  };
  return { messages, answer, error, send, stop, clear };
}
