// The panes of open operations, at most three, beside the lists.
import { el, fill } from './dom.js';
import { Operation } from './operation.js';
import { go, without } from './route.js';

export class Panes {
  // acted(answer, op) is called after an act in a pane.
  constructor(acted) {
    this.acted = acted;
    this.open = new Map();
    this.node = el('div', { class: 'panes' });
    this.first = true;
  }

  show(ids) {
    let newest = null;
    let left = ''; // the closed operation that had the focus
    for (const [id, pane] of this.open) {
      if (ids.includes(id)) continue;
      if (pane.node.contains(document.activeElement)) left = id;
      pane.stop();
      this.open.delete(id);
    }
    for (const id of ids) {
      if (this.open.has(id)) continue;
      const pane = new Operation(id, { close: () => this.close(id), acted: this.acted });
      this.open.set(id, pane);
      newest ??= pane;
    }
    fill(this.node, ids.map((id) => this.open.get(id).node));
    const top = this.open.get(ids[0]);
    if (newest && !this.first) newest.focus();
    else if (left) this.goBack(left);
    else if (top && !this.first && this.top !== ids[0]) top.focus();
    this.top = ids[0];
    this.first = false;
  }

  close(id) {
    go({ open: without(id) });
  }

  // goBack focuses an operation in the lists.
  goBack(id) {
    const row = [...document.querySelectorAll('.row')].find((node) => node.dataset.key === id);
    const name = row?.offsetParent ? row.querySelector('.name') : null;
    (name ?? this.node.querySelector('.title') ?? document.getElementById('main')).focus();
  }

  // mark notes that an operation may have changed, or without an ID any operation.
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
