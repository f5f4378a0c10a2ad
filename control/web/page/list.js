// The view of operations: first those waiting for a person, then running, waiting and recently ended ones.
import { get } from './api.js';
import { el, keepFocus } from './dom.js';
import { current, go, withOpen, without } from './route.js';
import { Panes } from './panes.js';
import { Refresh } from './refresh.js';
import { Section } from './section.js';
import { stateWord } from './format.js';

// live are the statuses in which an operation, or an optional step of it, may need a person.
const live = ['failed_manual', 'waiting_approval', 'running', 'paused', 'trailing', 'queued', 'scheduled', 'failed_retryable'];

const groups = [
  { title: 'Needs you', statuses: live, query: { needs_attention: true }, none: 'Nothing waits for a person.' },
  { title: 'At work', statuses: ['running', 'paused', 'trailing'], none: 'Nothing is at work.' },
  { title: 'Waiting', statuses: ['queued', 'scheduled', 'failed_retryable'], none: 'Nothing waits.' },
  { title: 'Ended', statuses: ['completed', 'failed', 'cancelled'], query: { sort: 'updated' }, none: 'Nothing has ended.' },
];

export class Operations {
  constructor() {
    this.panes = new Panes((answer, op) => this.acted(answer, op));
    this.sections = groups.map((group) => new Section({ ...group, acted: (answer, op) => this.acted(answer, op), asked: () => this.refresh.now() }));
    this.refresh = new Refresh((signal) => this.read(signal));
    this.lists = el('div', { class: 'lists' }, this.filterBar(), this.sections.map((section) => section.node));
    this.node = el('div', { class: 'operations' }, this.lists, this.panes.node);
    this.lists.addEventListener('keydown', (event) => walk(event, this.lists));
    this.shown = '';
  }

  filterBar() {
    this.job = el('input', { type: 'search', id: 'f-job', list: 'f-jobs', autocomplete: 'off', placeholder: 'group/job' });
    this.jobs = el('datalist', { id: 'f-jobs' });
    this.status = el('select', { id: 'f-status' }, el('option', { value: '', text: 'any' }),
      [...new Set(groups.flatMap((group) => group.statuses))].map((status) => el('option', { value: status, text: stateWord(status) })));
    this.text = el('input', { type: 'search', id: 'f-text', autocomplete: 'off', placeholder: 'in ID, parameters, error' });
    let timer = null;
    const changed = () => {
      clearTimeout(timer);
      timer = setTimeout(() => go({ job: this.job.value.trim(), status: this.status.value, q: this.text.value.trim() }, true), 200);
    };
    for (const input of [this.job, this.status, this.text]) input.addEventListener('input', changed);
    return el('form', { class: 'filter', role: 'search', 'aria-label': 'Filter', on: { submit: (event) => event.preventDefault() } },
      el('label', { for: 'f-job', text: 'Job' }), this.job, this.jobs,
      el('label', { for: 'f-status', text: 'Status' }), this.status,
      el('label', { for: 'f-text', text: 'Text' }), this.text);
  }

  // show follows the address.
  show(route) {
    const filter = { job: route.job, status: route.status, q: route.q };
    const key = JSON.stringify(filter);
    if (this.shown !== key) {
      this.shown = key;
      for (const [input, value] of [[this.job, filter.job], [this.status, filter.status], [this.text, filter.q]]) {
        if (document.activeElement !== input && input.value !== value) input.value = value;
      }
      for (const section of this.sections) section.narrow(filter);
      this.refresh.now();
    }
    this.node.classList.toggle('opened', route.open.length > 0); // first: what is not displayed takes no focus
    this.panes.show(route.open);
  }

  // opened is called when the connection is made: everything shown may be outdated.
  opened() {
    this.mark();
    this.panes.mark();
    get('/api/v1/jobs').then((answer) => {
      this.jobs.replaceChildren(...answer.jobs.map((job) => el('option', { value: `${job.group}/${job.name}` })));
    }, () => {}); // only suggestions
  }

  mark() {
    this.refresh.mark();
  }

  // read reads all lists and shows them at once. A list that cannot be read shows why; the others are shown.
  async read(signal) {
    const results = await Promise.allSettled(this.sections.map((section) => section.read(signal)));
    signal.throwIfAborted();
    onlyOnce(this.sections);
    keepFocus(() => {
      for (const section of this.sections) section.show();
    });
    const failed = results.find((result) => result.status === 'rejected');
    if (failed) throw failed.reason;
  }

  acted(answer, op) {
    if (answer.opens) go({ open: withOpen(answer.opens) });
    if (answer.gone && current().open.includes(op.id)) go({ open: without(op.id) }, true);
    this.mark();
    this.panes.mark(op.id);
  }

  event(event) {
    const patch = patches[event.type];
    if (patch) {
      for (const section of this.sections) if (section.patch(event.id, (op) => patch(op, event))) break;
    } else if (event.type === 'transition' || event.type === 'step' || event.type === 'gap') {
      this.mark();
    }
    this.panes.event(event);
  }

  stop() {
    this.refresh.stop();
    for (const section of this.sections) section.stop();
    this.panes.stop();
  }
}

// onlyOnce removes duplicates: the lists are read one after the other, and an operation may move between them. The
// newest version stays; of equal ones the first.
function onlyOnce(sections) {
  const last = new Map();
  for (const op of sections.flatMap((section) => section.operations)) {
    const other = last.get(op.id);
    if (!other || new Date(other.updated_at) < new Date(op.updated_at)) last.set(op.id, op);
  }
  for (const section of sections) section.operations = section.operations.filter((op) => last.get(op.id) === op);
}

// patches apply events to an operation that is shown, so that nothing has to be read again.
const patches = {
  progress: (op, event) => { op.progress = event.progress; },
  waiting: (op, event) => { op.waiting = event.waiting; },
  stalled: (op, event) => { op.stalled_at = event.stalled ? event.at : undefined; },
};

// walk moves the focus between operations with the arrow keys.
function walk(event, root) {
  const down = event.key === 'ArrowDown';
  if (!down && event.key !== 'ArrowUp' || event.target.closest('input, select, textarea')) return;
  const row = event.target.closest('.row');
  if (!row) return;
  const names = [...root.querySelectorAll('.row .name')];
  const next = names[names.indexOf(row.querySelector('.name')) + (down ? 1 : -1)];
  if (!next) return;
  event.preventDefault();
  next.focus();
}
