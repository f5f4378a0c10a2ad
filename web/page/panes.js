// The operations that are open, beside the lists, at most three.
import { el, fill } from './dom.js';
import { Operation } from './operation.js';
import { go, without } from './route.js';

export class Panes {
  // changed(id) is called after an act in a pane.
  constructor(changed) {
    this.changed = changed;
    this.open = new Map();
    this.node = el('div', { class: 'panes' });
    this.first = true;
  }

  show(ids) {
    let newest = null;
    for (const [id, pane] of this.open) {
      if (ids.includes(id)) continue;
      pane.stop();
      this.open.delete(id);
    }
    for (const id of ids) {
      if (this.open.has(id)) continue;
      const pane = new Operation(id, { close: () => this.close(id), changed: this.changed });
      this.open.set(id, pane);
      newest ??= pane;
    }
    fill(this.node, ids.map((id) => this.open.get(id).node));
    const top = this.open.get(ids[0]);
    if (newest && !this.first) newest.focus();
    else if (top && !this.first && this.top !== ids[0]) top.focus();
    this.top = ids[0];
    this.first = false;
  }

  // close has the focus go back to where the operation stands in the lists.
  close(id) {
    const had = this.open.get(id)?.node.contains(document.activeElement);
    go({ open: without(id) });
    if (!had) return;
    setTimeout(() => {
      const row = [...document.querySelectorAll('.row')].find((node) => node.dataset.key === id);
      (row?.querySelector('.name') ?? document.querySelector('.pane .title') ?? document.getElementById('main')).focus();
    });
  }

  // mark says that an operation may have changed, or all of them.
  mark(id) {
    for (const [of, pane] of this.open) if (id === undefined || of === id) pane.mark();
  }

  event(event) {
    if (event.type === 'gap') this.mark();
    else this.open.get(event.id)?.event(event);
  }

  stop() {
    for (const pane of this.open.values()) pane.stop();
    this.open.clear();
    this.node.replaceChildren();
    this.top = undefined;
    this.first = true;
  }
}
