// A question before an action that cannot be undone.

import { html, useEffect, useRef } from '../lib/html.js';

/**
 * A modal dialog. Escape and "Back" close it; the browser returns the focus to the button that opened it.
 * @param {{title: string, action: string, danger?: boolean, onConfirm: () => void, onClose: () => void, children?: any}} props
 */
export function ConfirmDialog({ title, action, danger = false, onConfirm, onClose, children }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => element?.close();
  }, []);
  return html`<dialog ref=${dialog} class="dialog" aria-labelledby="dialog-title" onClose=${onClose}>
    <h2 id="dialog-title">${title}</h2>
    <div class="dialog-text">${children}</div>
    <div class="row dialog-actions">
      <button type="button" class="button" autofocus onClick=${onClose}>Back</button>
      <button type="button" class="button ${danger ? 'danger' : 'primary'}" onClick=${onConfirm}>${action}</button>
    </div>
  </dialog>`;
}
