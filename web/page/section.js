// One list of operations with its heading and its count. It shows as many pages as a person asked for.
import { get } from './api.js';
import { button, el, keyed, keepFocus, set } from './dom.js';
import { newRow } from './row.js';
import { count } from './words.js';

const page = 50; // operations that each "more" adds
const most = 500; // what one list shows: who looks for an older one uses the filter
const mostAsked = 200; // what one request may ask for

export class Section {
  // query is what the list asks for beside the filter, statuses what it can show.
  // asked is called when a person wants more of it, acted after an act.
  constructor({ title, statuses, query = {}, none, acted, asked }) {
    this.statuses = statuses;
    this.query = query;
    this.filter = {};
    this.size = page;
    this.operations = [];
    this.next = null;
    this.total = el('span', { class: 'total' });
    this.wrong = el('p', { class: 'wrong', hidden: true });
    this.none = el('p', { class: 'none', text: none, hidden: true });
    this.rows = el('ul', { class: 'rows', 'aria-label': title });
    this.more = button('', () => {
      this.size = Math.min(this.size + page, most);
      asked();
    }, { class: 'more', hidden: true });
    this.node = el('section', {}, el('h2', { tabindex: '-1' }, title, ' ', this.total), this.wrong, this.rows, this.none, this.more);
    this.showRows = keyed(this.rows, (op) => op.id, (op) => newRow(op, acted));
  }

  // narrow has the list show what a filter leaves of it.
  narrow(filter) {
    const chosen = filter.status ? this.statuses.filter((status) => filter.status === status) : this.statuses;
    this.node.hidden = chosen.length === 0;
    this.filter = { ...this.query, status: chosen.join(','), job: filter.job, q: filter.q };
    this.size = page;
  }

  // read asks for what the list shows. Nothing is shown before show is called, so that an operation leaves one list when it comes to the next.
  async read(signal) {
    if (this.node.hidden) {
      this.operations = [];
      return;
    }
    const found = new Map();
    let answer = null;
    try {
      do {
        const limit = Math.min(this.size - found.size, mostAsked);
        answer = await get('/api/v1/operations', { ...this.filter, limit, next: answer?.next }, signal);
        for (const op of answer.operations) found.set(op.id, op);
      } while (answer.next && answer.operations.length > 0 && found.size < this.size);
    } catch (err) {
      if (err.name !== 'AbortError') this.failed(err);
      throw err;
    }
    this.failed(null);
    this.operations = [...found.values()];
    this.next = answer.next;
    this.count = answer.total;
    this.exact = answer.total_exact;
  }

  // patch changes what is shown of an operation, as an event says; false when it is not in the list.
  patch(id, change) {
    const op = this.operations.find((one) => one.id === id);
    if (!op) return false;
    change(op);
    this.later ??= setTimeout(() => {
      this.later = null;
      keepFocus(() => this.show());
    }, 100);
    return true;
  }

  show() {
    this.showRows(this.operations);
    set(this.total, this.count === undefined ? '' : `${count(this.count)}${this.exact ? '' : ' or more'}`);
    this.none.hidden = this.count === undefined || this.operations.length > 0;
    const full = this.size >= most;
    this.more.hidden = !this.next;
    set(this.more, full ? `The first ${count(most)} are shown; a filter finds the others` : 'More');
    this.more.disabled = full;
  }

  failed(err) {
    this.wrong.hidden = err === null;
    set(this.wrong, err?.message ?? '');
  }

  stop() {
    clearTimeout(this.later);
    this.later = null;
  }
}
