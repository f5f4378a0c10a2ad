// The view of the outbox: pending deliveries, deliveries that wait for a person, and targets that are down.
import { actbar } from './actionbar.js';
import { get } from './api.js';
import { deliveryActs } from './deliveries.js';
import { attribute, button, el, keepFocus, keyed, set } from './dom.js';
import { link } from './links.js';
import { Refresh } from './refresh.js';
import { age, since } from './ages.js';
import { clock, count, number, stateWord } from './format.js';

const page = 50;
const most = 500;

export class Outbox {
  constructor() {
    this.size = page;
    this.wrong = el('p', { class: 'wrong', hidden: true });
    this.targets = el('ul', { class: 'rows targets', 'aria-label': 'Targets' });
    this.targetsPart = el('section', { hidden: true }, el('h2', { tabindex: '-1', text: 'Targets' }), this.targets);
    this.total = el('span', { class: 'total' });
    this.none = el('p', { class: 'none', text: 'Everything is delivered.', hidden: true });
    this.rows = el('ul', { class: 'rows outbox', 'aria-label': 'Deliveries' });
    this.more = button('More', () => {
      this.size = Math.min(this.size + page, most);
      this.refresh.now();
    }, { class: 'more', hidden: true });
    this.status = el('select', { id: 'o-status', on: { change: () => {
      this.size = page;
      this.refresh.now();
    } } },
    el('option', { value: '', text: 'any' }), el('option', { value: 'failed_manual', text: stateWord('failed_manual') }), el('option', { value: 'pending', text: 'pending' }));
    this.node = el('div', {},
      el('form', { class: 'filter', on: { submit: (event) => event.preventDefault() } }, el('label', { for: 'o-status', text: 'Status' }), this.status),
      this.targetsPart, el('section', {}, el('h2', { tabindex: '-1' }, 'Deliveries ', this.total), this.wrong, this.rows, this.none, this.more));
    this.showTargets = keyed(this.targets, (target) => target.name, newTarget);
    this.showRows = keyed(this.rows, (entry) => entry.entry, (entry) => newEntry(entry, () => this.refresh.mark(0)));
    this.refresh = new Refresh((signal) => this.read(signal), (err) => {
      this.wrong.hidden = err === null;
      set(this.wrong, err?.message ?? '');
    });
  }

  async read(signal) {
    const found = new Map();
    let answer = null;
    do {
      answer = await get('/api/v1/outbox', { status: this.status.value, limit: Math.min(this.size - found.size, 200), next: answer?.next }, signal);
      for (const entry of answer.entries) found.set(entry.entry, entry);
    } while (answer.next && answer.entries.length > 0 && found.size < this.size);
    keepFocus(() => {
      this.showRows([...found.values()]);
      this.showTargets(answer.targets ?? []);
      this.targetsPart.hidden = !answer.targets?.length;
      set(this.total, count(answer.total));
      this.none.hidden = found.size > 0;
      this.more.hidden = !answer.next || found.size >= answer.total;
      this.more.disabled = this.size >= most;
    });
  }

  show() {}

  opened() {
    this.refresh.mark(0);
  }

  event(event) {
    if (['delivery', 'target', 'gap'].includes(event.type) || event.type === 'transition' && event.finished_seq) this.refresh.mark();
  }

  stop() {
    this.refresh.stop();
  }
}

function newEntry(first, changed) {
  const state = el('span', { class: 'state' });
  const name = link(el('a', { class: 'name', title: first.id }, el('span', { class: 'job', text: first.job ? `${first.group}/${first.job}` : first.id }), ' ',
    el('span', { class: 'number', text: number(first.id) })), first.id);
  const where = el('span', { class: 'far' });
  const why = el('span', { class: 'text' });
  const how = age();
  const acts = actbar(el('span', { class: 'acts' }), changed);
  const node = el('li', { class: 'row', data: { key: first.entry } }, state, name, el('span', { class: 'progress' }, where), el('span', { class: 'why' }, why), how, acts.node);
  return { node, update: (entry) => {
    set(state, stateWord(entry.status));
    attribute(node, 'data-state', entry.status);
    set(where, entry.at ?? entry.kind);
    where.title = entry.name ?? '';
    set(why, [
      entry.error || entry.last_error, entry.attempts > 0 && `tries: ${entry.attempts}`, entry.next_try_at && `next at ${clock(entry.next_try_at)}`,
      entry.retry_until && `given up at ${clock(entry.retry_until)}`,
    ].filter(Boolean).join(' · '));
    since(how, entry.created_at);
    acts.update(entry, deliveryActs(entry.entry, entry.at ?? entry.kind));
  } };
}

function newTarget() {
  const state = el('span', { class: 'state' });
  const name = el('span', { class: 'name' });
  const why = el('span', { class: 'text' });
  const how = age();
  const node = el('li', { class: 'row' }, state, name, el('span', { class: 'progress' }), el('span', { class: 'why' }, why), how);
  return { node, update: (target) => {
    set(state, target.down ? 'down' : 'up');
    attribute(node, 'data-state', target.down ? 'failed_manual' : 'open');
    set(name, target.name);
    set(why, [`${count(target.pending)} pending`, target.error, target.next_try_at && `next try at ${clock(target.next_try_at)}`].filter(Boolean).join(' · '));
    since(how, target.since ?? null);
  } };
}
