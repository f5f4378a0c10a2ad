// The pane of one operation: its details, its log, and the acts on it.
import { actbar } from './actionbar.js';
import { actsOf, ended } from './actions.js';
import { get, operationPath, Refused } from './api.js';
import { Deliveries } from './deliveries.js';
import { button, el, keepFocus, set } from './dom.js';
import { Details } from './details.js';
import { Slot } from './links.js';
import { Log } from './log.js';
import { Refresh } from './refresh.js';
import { Steps } from './steps.js';
import { endedText, fraction, number, placeText, progressText, stateWord, why } from './format.js';

export class Operation {
  // close() closes the pane, acted(answer, op) is called after an act.
  constructor(id, { close, acted }) {
    this.id = id;
    this.op = null;
    this.title = el('h2', { class: 'title', tabindex: '-1', id: `title-${id}`, text: number(id) });
    this.state = el('span', { class: 'state' });
    this.acts = actbar(el('p', { class: 'acts', role: 'group', 'aria-label': 'What can be done' }), acted);
    this.wrong = el('p', { class: 'wrong', hidden: true });
    this.attention = el('p', { class: 'attention', hidden: true });
    this.waiting = el('span');
    this.holder = new Slot(', held by ');
    this.person = new Slot('; a person must act on ');
    this.place = el('span');
    this.waits = el('p', { class: 'waits', hidden: true }, this.waiting, this.holder.node, this.person.node, this.place);
    this.bar = el('progress', { max: 1, 'aria-label': 'Progress' });
    this.far = el('span');
    this.progress = el('p', { class: 'progress', hidden: true }, this.bar, this.far);
    this.log = new Log(id);
    this.steps = new Steps((answer) => acted(answer, this.op), (name) => this.log.step(name));
    this.facts = new Details();
    this.deliveries = new Deliveries(() => this.mark());
    this.node = el('section', { class: 'pane', data: { key: id }, 'aria-labelledby': `title-${id}`, on: { keydown: (event) => {
      if (event.key === 'Escape' && !event.target.closest('dialog')) {
        event.stopPropagation();
        close();
      }
    } } },
    el('div', { class: 'head' }, this.state, this.title, button('×', close, { class: 'close', 'aria-label': `Close ${number(id)}`, data: { act: 'close' } })),
    el('p', { class: 'whole', text: id }), this.wrong, this.acts.node, this.attention, this.waits, this.progress,
    this.steps.node, this.log.node, this.deliveries.node, this.facts.node);
    this.refresh = new Refresh((signal) => this.read(signal), (err) => this.failed(err));
    this.refresh.mark(0);
  }

  focus() {
    this.title.focus();
    this.node.scrollIntoView({ block: 'nearest' });
  }

  mark() {
    this.refresh.mark();
  }

  async read(signal) {
    this.op = await get(operationPath(this.id), {}, signal);
    this.render();
    this.log.follow(this.op);
  }

  failed(err) {
    const gone = err instanceof Refused && (err.status === 404 || err.status === 410);
    this.wrong.hidden = err === null;
    set(this.wrong, err?.message ?? '');
    if (gone) this.log.stop();
  }

  event(event) {
    if (event.type === 'progress' && this.op) {
      this.op.progress = event.progress;
      this.showProgress();
    } else if (event.type === 'waiting' && this.op) {
      this.op.waiting = event.waiting;
      this.showReason();
    } else {
      this.mark();
    }
  }

  render() {
    const op = this.op;
    keepFocus(() => {
      const stalled = op.stalled_at && op.state === 'running';
      set(this.state, stalled ? 'stalled' : op.state === 'trailing' ? `completed, ${op.attention ? 'an optional step needs you' : 'optional steps go on'}` : stateWord(op.state));
      this.node.dataset.state = stalled ? 'stalled' : op.state === 'completed' && op.result === 'partial' ? 'partial' : op.state;
      set(this.title, `${op.job ? `${op.group}/${op.job}` : op.endpoint} ${number(op.id)}`);
      this.acts.update(op, actsOf(op));
      this.showReason();
      this.showProgress();
      this.steps.update(op);
      this.facts.update(op);
      this.deliveries.update(op);
    });
  }

  showReason() {
    const { op } = this;
    const at = op.attention;
    const asked = op.requests?.length ? `${op.requests.join(', ')} asked for. ` : '';
    const failure = ended(op.state) || op.state === 'failed_retryable' ? endedText(op) : '';
    const text = at ? [at.step && `Step ${at.step} (${at.number} of ${at.total})`, at.message, at.error_code].filter(Boolean).join(' · ') : failure;
    set(this.attention, [asked, op.problem, text].filter(Boolean).join(''));
    this.attention.hidden = this.attention.textContent === '';
    const waits = op.state === 'queued' || op.state === 'scheduled' || op.state === 'failed_retryable' ? op.waiting : null;
    this.waits.hidden = !waits;
    if (!waits) return;
    set(this.waiting, `Waits: ${why(waits)}`);
    set(this.place, placeText(waits));
    this.holder.say(waits.reason === 'after' ? ' ' : ', held by ');
    this.holder.update(waits.held_by);
    this.person.update(waits.needs_person);
  }

  showProgress() {
    const { op } = this;
    const text = progressText(op);
    const part = fraction(op.progress);
    this.progress.hidden = ended(op.state) || text === '' && part === null;
    this.bar.hidden = part === null;
    if (part !== null) this.bar.value = part;
    set(this.far, text);
  }

  stop() {
    this.refresh.stop();
    this.log.stop();
  }
}
