// The sign-in form: all that the page shows without a token, on a server that has tokens.

import { html, useState } from '../lib/html.js';
import { signIn } from '../lib/session.js';

/**
 * @param {{onSession: (session: import('../lib/types.d.ts').Session) => void, message: string}} props `message` says why a session ended
 */
export function SignIn({ onSession, message }) {
  const [error, setError] = useState(message);
  const [busy, setBusy] = useState(false);

  /** @param {SubmitEvent} event */
  const submit = async (event) => {
    event.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (event.target));
    const value = String(form.get('token')).trim();
    if (value === '') {
      setError('Enter a token.');
      return;
    }
    setBusy(true);
    setError('');
    try {
      onSession(await signIn(value, { remember: form.get('remember') === 'on' }));
    } catch (cause) {
      const { status, message } = /** @type {import('../lib/api.js').ApiError} */ (cause);
      setError(status === 401 ? 'The server does not accept this token.' : message);
      setBusy(false);
    }
  };

  return html`<main class="sign-in">
    <form class="card" onSubmit=${submit} novalidate>
      <h1>Sign in</h1>
      <p class="muted">This server needs an API token.</p>
      <div class="field">
        <label for="token">API token</label>
        <input id="token" name="token" type="password" autocomplete="current-password" spellcheck=${false} autofocus aria-describedby="token-error" aria-invalid=${error === '' ? null : 'true'} />
        <p class="field-error" id="token-error" role="alert">${error}</p>
      </div>
      <label class="check"><input type="checkbox" name="remember" /> Remember the token in this browser</label>
      <p class="hint">Otherwise it is kept for this tab only.</p>
      <button type="submit" class="button primary" disabled=${busy}>${busy ? 'Signing in…' : 'Sign in'}</button>
    </form>
  </main>`;
}
