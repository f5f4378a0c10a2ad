// Links to operations. Their address is determined on click, as it depends on which operations are open then.
import { el, set } from './dom.js';
import { operationHash } from './route.js';
import { number } from './format.js';

// operationLink links to an operation by its number, or by the given text.
export function operationLink(id, text = number(id)) {
  return link(el('a', { class: 'id', text, title: id }), id);
}

// link makes an a element lead to an operation.
export function link(node, id) {
  node.href = `#/operations?open=${id}`;
  node.addEventListener('click', (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    location.hash = operationHash(id);
  });
  return node;
}

// Slot holds a link to an operation, or nothing.
export class Slot {
  constructor(before) {
    this.id = '';
    this.before = el('span', { text: before });
    this.node = el('span', { class: 'slot', hidden: true }, this.before);
  }

  update(id) {
    if (this.id === (id ?? '')) return;
    this.id = id ?? '';
    this.node.hidden = !id;
    this.node.replaceChildren(this.before, ...(id ? [operationLink(id)] : []));
  }

  say(text) {
    set(this.before, text);
  }
}
