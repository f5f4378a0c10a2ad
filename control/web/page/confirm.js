// Asks before an act that cannot be undone or needs more input. Escape and "Leave it" do nothing.
import { el } from './dom.js';

const dialog = document.getElementById('ask');

// ask shows a question. Each field has name, label and value, and optionally type (text, number, area, select with
// options) and hint. It resolves to the values by name, or to null when the person leaves it.
export function ask({ title, text, fields = [], act, danger = false }) {
  if (dialog.open) return Promise.resolve(null);
  const inputs = fields.map(input);
  const sentences = [].concat(text ?? []).map((sentence) => el('p', { text: sentence }));
  return new Promise((resolve) => {
    let values = null;
    const form = el('form', { on: { submit: (event) => {
      event.preventDefault();
      values = Object.fromEntries(inputs.map(({ name, node }) => [name, node.value.trim()]));
      dialog.close();
    } } },
    el('h2', { id: 'ask-title', text: title }), sentences, inputs.map(({ box }) => box),
    el('p', { class: 'choices' },
      el('button', { type: 'button', text: 'Leave it', data: { act: 'leave' }, on: { click: () => dialog.close() } }),
      el('button', { type: 'submit', class: danger ? 'danger' : 'main', text: act, data: { act: 'confirm' } })));
    dialog.replaceChildren(form);
    const back = document.activeElement;
    const thing = back?.closest('[data-key]')?.dataset.key;
    dialog.addEventListener('close', () => {
      dialog.replaceChildren();
      if (!back?.isConnected) refocus(thing);
      resolve(values);
    }, { once: true });
    dialog.showModal();
    (inputs[0]?.node ?? form.querySelector('[data-act=leave]')).focus();
  });
}

// refocus focuses the thing with a key, or the main part of the page if the thing is gone.
function refocus(key) {
  const thing = [...document.querySelectorAll('[data-key]')].find((node) => node.dataset.key === key);
  (thing?.querySelector('a, button') ?? document.getElementById('main')).focus({ preventScroll: true });
}

function input({ name, label, value = '', type = 'text', hint, options = [], required = false }) {
  const id = `ask-${name}`;
  const props = { id, name, required, 'aria-describedby': hint ? `${id}-hint` : null };
  let node;
  if (type === 'area') node = el('textarea', { ...props, rows: 6, spellcheck: 'false' });
  else if (type === 'select') node = el('select', props, options.map(([text, of]) => el('option', { value: of, text })));
  else node = el('input', { ...props, type: 'text', inputmode: type === 'number' ? 'numeric' : null, autocomplete: 'off' });
  node.value = value;
  const box = el('div', { class: 'field' }, el('label', { for: id, text: label }), node, hint && el('p', { class: 'hint', id: `${id}-hint`, text: hint }));
  return { name, node, box };
}
