// The steps of an operation: their statuses, durations, errors, and the log of each.
import { actbar } from './actionbar.js';
import { ended, stepActs } from './actions.js';
import { attribute, button, el, keyed, set } from './dom.js';
import { span, stateWord } from './format.js';

export class Steps {
  // acted(answer) is called after an act on a step, open(name) shows the log of a step.
  constructor(acted, open) {
    this.list = el('ol', { class: 'steps' });
    this.node = el('div', { class: 'part', hidden: true }, el('h3', { text: 'Steps' }), this.list);
    this.show = keyed(this.list, ({ step }) => step.name, ({ step }) => newStep(step, acted, open));
  }

  update(op) {
    const steps = op.steps ?? [];
    this.node.hidden = steps.length === 0;
    this.show(steps.map((step) => ({ op, step })));
  }
}

function newStep(first, acted, open) {
  const state = el('span', { class: 'state' });
  const name = el('span', { class: 'name', text: first.name });
  const took = el('span', { class: 'age' });
  const text = el('span', { class: 'text' });
  const log = button('Log', () => open(first.name), { 'aria-label': `Log of step ${first.name}`, data: { act: `log-${first.name}` } });
  const acts = actbar(el('span', { class: 'acts' }), acted);
  const node = el('li', {}, state, name, took, el('span', { class: 'acts' }, acts.node, log), text);
  return { node, update: ({ op, step }) => {
    set(state, step.status.startsWith('failed') && (ended(op.state) || step.optional && step.status === 'failed_manual') ? 'failed' : stateWord(step.status));
    attribute(node, 'data-state', step.status);
    set(took, step.duration_seconds === undefined ? '' : span(step.duration_seconds));
    log.hidden = !step.started_at;
    acts.update(op, stepActs(op, step));
    const parts = [
      step.optional && 'optional', step.approve && !step.approved_by && step.status === 'pending' && 'asks for approval',
      step.approved_by && `approved by ${step.approved_by}`, step.retries > 0 && `retries: ${step.retries}`,
      step.needs?.length && `after ${step.needs.join(', ')}`, step.reason && `skipped: ${step.reason}`,
      step.error_message && (step.error_code ? `${step.error_message} (${step.error_code})` : step.error_message),
      step.outputs && Object.entries(step.outputs).map(([key, value]) => `${key} = ${JSON.stringify(value)}`).join(', '),
    ];
    set(text, parts.filter(Boolean).join(' · '));
  } };
}
