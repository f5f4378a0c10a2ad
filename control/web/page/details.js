// The record of an operation besides its state: parameters, facts, the actions of persons, and its history.
import { open, operationPath } from './api.js';
import { button, el } from './dom.js';
import { operationLink } from './links.js';
import { doing } from './message.js';
import { save } from './save.js';
import { bytes, clock, count, span, stateWord } from './format.js';

export class Details {
  constructor() {
    this.params = part('Parameters');
    this.main = part('Record');
    this.artifacts = part('Artifacts');
    this.acts = part('What persons did', 'ol');
    this.path = part('History', 'ol');
    this.node = el('div', {}, this.params.node, this.main.node, this.artifacts.node, this.acts.node, this.path.node);
    this.shown = '';
  }

  update(op) {
    // These change rarely, and never by an event of progress.
    const key = JSON.stringify([op.params, op.corrected, op.updated_at, op.state, op.artifacts, op.acts, op.priority, op.pinned, op.waiting?.since]);
    if (key === this.shown) return;
    this.shown = key;
    this.params.fill([
      ...pairs(Object.entries(op.params ?? {}).filter(([name]) => !(name in (op.corrected ?? {}))).map(([name, value]) => [name, JSON.stringify(value)])),
      ...pairs(Object.entries(op.corrected ?? {}).map(([name, value]) => [name, `${JSON.stringify(value)} (set by a person)`])),
    ]);
    this.main.fill(pairs(factsOf(op)));
    this.artifacts.fill((op.artifacts ?? []).slice(0, 100).map((name) => artifact(op.id, name)));
    this.acts.fill((op.acts ?? []).slice(-50).map((act) => el('li', {}, el('time', { text: clock(act.at), datetime: act.at }), ' ',
      [act.ask, act.step, act.by && `by ${act.by}`, act.reason, act.values && JSON.stringify(act.values)].filter(Boolean).join(' · '))));
    this.path.fill((op.transitions ?? []).slice(-50).map((one) => el('li', {}, el('time', { text: clock(one.at), datetime: one.at }), ' ',
      el('span', { text: `${one.from ? `${stateWord(one.from)} → ` : ''}${stateWord(one.to)}` }), el('span', { class: 'dim', text: ` ${one.cause}` }))));
  }
}

function part(title, kind = 'dl') {
  const list = el(kind, { class: kind === 'dl' ? 'facts' : 'events' });
  const node = el('details', { class: 'part', open: kind === 'dl', hidden: true }, el('summary', { text: title }), list);
  return { node, fill: (children) => {
    node.hidden = children.length === 0;
    list.replaceChildren(...children);
  } };
}

const pairs = (entries) => entries.map(([name, value]) => el('div', {}, el('dt', { text: name }), el('dd', {}, value)));

function factsOf(op) {
  const links = (ids) => el('span', {}, ids.flatMap((id, i) => [i > 0 && ', ', operationLink(id)]));
  const use = op.resources;
  const all = [
    ['lane', op.lane], ['limits', op.limits?.join(', ')], ['priority', op.priority ? String(op.priority) : ''], ['key', op.key], ['tags', op.tags?.join(', ')],
    ['created', op.created_at && `${clock(op.created_at)}${op.created_by ? ` by ${op.created_by}` : ''}`],
    ['not before', op.not_before && clock(op.not_before)],
    ['comes after', op.after?.length && links(op.after)],
    ['started', op.started_at && clock(op.started_at)],
    ['ended', op.finished_at && clock(op.finished_at)],
    ['took', op.started_at && op.finished_at && span((new Date(op.finished_at) - new Date(op.started_at)) / 1000)],
    ['paused for', op.paused_seconds >= 1 && span(op.paused_seconds)],
    ['next try', op.state === 'failed_retryable' && op.due_at && clock(op.due_at)],
    ['stalled since', op.stalled_at && clock(op.stalled_at)],
    ['result', op.result],
    ['error', op.error && `${op.error.message}${op.error.code ? ` (${op.error.code})` : ''}`],
    ['reason', op.reason],
    ['items', op.processed || op.failed ? `${count(op.processed)} done, ${count(op.failed)} failed` : ''],
    ['run', op.run > 1 && `${op.run}, ${op.attempts} attempts ended${op.rescues ? `, ${op.rescues} rescues` : ''}`],
    ['exit code', op.exit_code !== undefined && op.exit_code !== null && String(op.exit_code)], ['signal', op.signal],
    ['process', op.state === 'running' && op.pid && `${op.pid} on ${op.host}`],
    ['used', use && `${span(use.user_seconds + use.system_seconds)} of processor, ${bytes(use.peak_memory_bytes)} of memory at most`],
    ['retry of', op.retry_of && operationLink(op.retry_of)],
    ['then', op.then && (op.then.id ? operationLink(op.then.id) : op.then.error)],
    ['pinned', op.pinned && 'kept until it is unpinned'],
  ];
  return all.filter(([, value]) => value);
}

// artifact is a file that the work left. The page fetches it with the token and lets the browser save it.
function artifact(id, name) {
  const path = operationPath(id, `/artifacts/${name.split('/').map(encodeURIComponent).join('/')}`);
  return el('div', {}, el('dt', { text: name }), el('dd', {}, button('Save', () => doing(async () => save(await open('GET', path), name.split('/').at(-1))), { 'aria-label': `Save ${name}` })));
}
