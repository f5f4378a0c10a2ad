// One operation in a list: its state, name, progress, reason, age, and the acts on it.
import { actbar } from './actionbar.js';
import { actsOf, ended, needsPerson } from './actions.js';
import { attribute, el, set } from './dom.js';
import { link, Slot } from './links.js';
import { age, since } from './ages.js';
import { endedText, fraction, number, paramsText, placeText, progressText, stateWord, why } from './format.js';

// newRow returns {node, update(op)}. It calls acted(answer, op) after an act.
export function newRow(op, acted) {
  const state = el('span', { class: 'state' });
  const job = el('span', { class: 'job' });
  const id = el('span', { class: 'number', text: number(op.id) });
  const name = link(el('a', { class: 'name', title: op.id }, job, ' ', id), op.id);
  const given = el('span', { class: 'given' });
  const bar = el('progress', { max: 1, 'aria-label': 'Progress' });
  const far = el('span', { class: 'far' });
  const text = el('span', { class: 'text' });
  const holder = new Slot(', held by ');
  const person = new Slot(' behind it, needs you: ');
  const place = el('span');
  const how = age();
  const acts = actbar(el('span', { class: 'acts' }), acted);
  const node = el('li', { class: 'row', data: { key: op.id } },
    state, el('span', { class: 'what' }, name, ' ', given), el('span', { class: 'progress' }, bar, far), el('span', { class: 'why' }, text, holder.node, person.node, place), how, acts.node);
  return { node, update: (now) => {
    set(state, now.stalled_at && now.state === 'running' ? 'stalled' : stateWord(now.state));
    attribute(node, 'data-state', now.stalled_at && now.state === 'running' ? 'stalled' : now.state === 'completed' && now.result === 'partial' ? 'partial' : now.state);
    set(job, now.job ? `${now.group}/${now.job}` : now.endpoint);
    set(given, paramsText(now.params));
    given.title = given.textContent;
    const part = ended(now.state) ? null : fraction(now.progress);
    bar.hidden = part === null;
    if (part !== null) bar.value = part;
    set(far, ended(now.state) ? '' : progressText(now));
    const reason = reasonOf(now);
    set(text, reason);
    text.title = reason;
    holder.say(now.waiting?.reason === 'after' ? ' ' : ', held by ');
    holder.update(now.waiting?.held_by);
    person.update(now.waiting?.needs_person !== now.waiting?.held_by ? now.waiting?.needs_person : null);
    set(place, placeText(now.waiting));
    since(how, timeOf(now), ended(now.state) ? 'ago' : 'for');
    acts.update(now, actsOf(now, true));
  } };
}

// reasonOf explains the state of an operation.
function reasonOf(op) {
  const asked = op.requests?.length ? `${op.requests.join(', ')} asked for` : '';
  const parts = [asked];
  if (op.problem) parts.push(op.problem);
  if (op.attention || needsPerson(op.state)) {
    const at = op.attention;
    if (at) parts.push([at.step && `${at.step}${at.total ? ` (${at.number} / ${at.total})` : ''}`, at.message].filter(Boolean).join(': '));
  } else if (op.waiting) {
    if (op.state === 'failed_retryable' && op.error) parts.push(op.error.message);
    parts.push(why(op.waiting));
  } else if (ended(op.state)) {
    parts.push(endedText(op));
  } else if (op.foreign) {
    parts.push('kept by another program');
  } else if (op.reason && op.state !== 'running') {
    parts.push(op.reason);
  }
  return parts.filter(Boolean).join(' · ');
}

// timeOf is since when the operation is in its state.
function timeOf(op) {
  if (ended(op.state)) return op.finished_at ?? op.updated_at;
  if (op.waiting?.since) return op.waiting.since;
  const last = op.transitions?.at(-1);
  return op.state === 'running' ? op.started_at : last?.at ?? op.created_at;
}
