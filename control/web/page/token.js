// The token: where it is stored, and the form for it. It lives as long as the tab, and is only sent in the header
// Authorization.
import { el } from './dom.js';

const name = 'jobdir.token';

function stored() {
  try {
    return sessionStorage.getItem(name) ?? '';
  } catch {
    return ''; // a browser without storage: the token lives as long as the page
  }
}

export const token = {
  value: stored(),
  onRefused: () => {},
  // keep sets the token, '' for none.
  keep(value) {
    this.value = value;
    try {
      if (value) sessionStorage.setItem(name, value);
      else sessionStorage.removeItem(name);
    } catch { /* as above */ }
  },
  // refused is called when the daemon requires a token, or a different one.
  refused() {
    this.onRefused();
  },
};

// wrongWith returns why a text is not a valid token, '' when it is.
export function wrongWith(text) {
  if (text === '') return 'Type the token: a line of the file that the daemon was given with --token-file, without the name before the colon.';
  const at = [...text].findIndex((c) => c <= ' ' || c > '~');
  if (at < 0) return '';
  return `This cannot be a token: character ${at + 1} (${describe([...text][at])}) is none that a header can carry. Letters, digits and ASCII signs alone can be in one.`;
}

function describe(c) {
  if (c === ' ') return 'a space';
  const code = `U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}`;
  return c < ' ' || c === '\u007f' ? code : `${c}, ${code}`;
}

// form asks for a token. accept(text) returns '' when the daemon accepts it, else why not.
export function form(reason, accept) {
  const input = el('input', { type: 'password', id: 'token', name: 'token', autocomplete: 'off', spellcheck: 'false', 'aria-describedby': 'token-wrong' });
  const wrong = el('p', { class: 'wrong', id: 'token-wrong', role: 'alert', text: reason });
  const send = el('button', { type: 'submit', text: 'Go on' });
  const node = el('form', { class: 'token', on: { submit: send_ } },
    el('h2', { text: 'A token is needed' }),
    el('p', { text: 'This daemon answers only who shows a token. It is kept in this tab alone, and forgotten when the tab is closed.' }),
    el('label', { for: 'token', text: 'Token' }), input, send, wrong);
  async function send_(event) {
    event.preventDefault();
    if (send.getAttribute('aria-busy')) return;
    const text = input.value.trim();
    let why = wrongWith(text);
    if (!why) {
      send.setAttribute('aria-busy', 'true');
      why = await accept(text);
      send.removeAttribute('aria-busy');
    }
    wrong.textContent = why;
    input.toggleAttribute('aria-invalid', why !== '');
    if (why) input.focus();
  }
  return { node, focus: () => input.focus() };
}
