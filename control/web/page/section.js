// One list of operations with its heading and its count. It shows as many pages as the person requested.
import { get } from './api.js';
import { button, el, keyed, keepFocus, set } from './dom.js';
import { newRow } from './row.js';
import { count } from './format.js';

const page = 50; // operations that each "more" adds
const most = 500; // the longest list; the filter finds older operations
const mostAsked = 200; // the limit of one request

export class Section {
  // query are the parameters of the list besides the filter, statuses the statuses it can show.
  // asked is called when a person wants more of the list, acted after an act.
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

  // narrow applies a filter to the list.
  narrow(filter) {
    const chosen = filter.status ? this.statuses.filter((status) => filter.status === status) : this.statuses;
    this.node.hidden = chosen.length === 0;
    this.filter = { ...this.query, status: chosen.join(','), job: filter.job, q: filter.q };
    this.size = page;
  }

  // read reads the list. Only show displays it, so that an operation leaves one list when it appears in the next.
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

  // patch applies an event to an operation of the list; false when it is not in the list.
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
