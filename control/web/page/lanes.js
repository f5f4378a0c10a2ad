// The view of lanes: how many operations run and wait, why nothing starts, and how to change that.
import { actbar } from './actionbar.js';
import { call, get, post } from './api.js';
import { ask } from './confirm.js';
import { attribute, el, keepFocus, keyed, set } from './dom.js';
import { doing } from './message.js';
import { Slot } from './links.js';
import { Refresh } from './refresh.js';
import { age, since } from './ages.js';
import { clock, count, hold } from './format.js';

const path = (name, rest = '') => `/api/v1/lanes/${encodeURIComponent(name)}${rest}`;
const called = (name) => (name === 'all' ? 'all lanes' : `lane ${name}`);
const room = (n) => (n === null || n === undefined ? 'any number' : count(n));

export class Lanes {
  constructor() {
    this.wrong = el('p', { class: 'wrong', hidden: true });
    this.rows = el('ul', { class: 'rows lanes', 'aria-label': 'Lanes' });
    this.limits = el('ul', { class: 'rows limits', 'aria-label': 'Limits' });
    this.limitsPart = el('section', { hidden: true }, el('h2', { tabindex: '-1', text: 'Limits' }), this.limits);
    this.node = el('div', {}, el('section', {}, el('h2', { tabindex: '-1', text: 'Lanes' }), this.wrong, this.rows), this.limitsPart);
    this.showRows = keyed(this.rows, (lane) => lane.name, () => newLane(() => this.refresh.mark(0)));
    this.showLimits = keyed(this.limits, (limit) => limit.name, newLimit);
    this.refresh = new Refresh((signal) => this.read(signal), (err) => {
      this.wrong.hidden = err === null;
      set(this.wrong, err?.message ?? '');
    });
  }

  async read(signal) {
    const { lanes, limits, paused, closed, problems } = await get('/api/v1/lanes', {}, signal);
    const total = (member) => lanes.reduce((sum, lane) => sum + lane[member], 0);
    const all = { name: 'all', known: true, running: total('running'), waiting: total('waiting'), paused, closed, problems };
    keepFocus(() => {
      this.showRows([all, ...lanes]);
      this.showLimits(limits ?? []);
      this.limitsPart.hidden = !limits?.length;
    });
  }

  show() {}

  opened() {
    this.refresh.mark(0);
  }

  event(event) {
    if (['transition', 'lane', 'gap'].includes(event.type)) this.refresh.mark();
  }

  stop() {
    this.refresh.stop();
  }
}

function newLane(changed) {
  const state = el('span', { class: 'state' });
  const name = el('span', { class: 'name' });
  const load = el('span', { class: 'load' });
  const bar = el('meter', { min: 0 });
  const why = el('span', { class: 'text' });
  const trial = new Slot(' tries ');
  const oldest = age();
  const acts = actbar(el('span', { class: 'acts' }), changed);
  const node = el('li', { class: 'row' }, state, name, el('span', { class: 'progress' }, bar, load), el('span', { class: 'why' }, why, trial.node), oldest, acts.node);
  return { node, update: (lane) => {
    const held = lane.paused ?? (lane.paused_by_all ? {} : null);
    const shut = lane.closed ?? (lane.closed_by_all ? {} : null);
    const word = held && shut ? 'paused, closed' : held ? 'paused' : shut ? 'closed' : lane.breaker?.state === 'trial' ? 'trial' : 'open';
    node.dataset.key = lane.name;
    set(state, word);
    attribute(node, 'data-state', held ? 'paused' : shut ? 'closed' : 'open');
    set(name, lane.name === 'all' ? 'all lanes' : lane.name);
    bar.hidden = !lane.capacity;
    if (lane.capacity) {
      bar.max = lane.capacity;
      bar.value = Math.min(lane.running, lane.capacity);
      bar.setAttribute('aria-label', `Places taken in ${called(lane.name)}`);
    }
    set(load, `${count(lane.running)}${lane.capacity === null || lane.name === 'all' ? '' : ` of ${count(lane.capacity)}`} running · ${count(lane.waiting)} waiting`);
    set(why, sentence(lane, held, shut));
    trial.update(lane.breaker?.trial);
    since(oldest, lane.oldest ?? null);
    acts.update(lane, lane.known ? laneActs(lane) : []);
  } };
}

function sentence(lane, held, shut) {
  const breaker = lane.breaker;
  return [
    !lane.known && 'not in the configuration: nothing starts here',
    held && `starts nothing${lane.paused_by_all ? ': all lanes are paused' : ''} ${hold(held)}`.trim(),
    shut && `takes nothing${lane.closed_by_all ? ': all lanes are closed' : ''} ${hold(shut)}`.trim(),
    lane.capacity !== lane.configured && lane.configured !== undefined && `configured: ${room(lane.configured)}`,
    lane.max_starts && `at most ${lane.max_starts} starts`, lane.gap && `${lane.gap} between starts`,
    lane.next_start && `next start at ${clock(lane.next_start)}`,
    breaker && `breaker ${breaker.state}${breaker.failures ? `, failures: ${breaker.failures}` : ''}${breaker.until ? ` until ${clock(breaker.until)}` : ''}`,
    ...(lane.problems ?? []).map((problem) => `${problem.file}: ${problem.reason}`),
  ].filter(Boolean).join(' · ');
}

function laneActs(lane) {
  const act = (name, text, run, more = {}) => ({ name, text, label: `${text} ${called(lane.name)}`, run, ...more });
  const plain = (action) => () => told(lane.name, action, () => post(path(lane.name, `/${action}`)));
  const acts = [act('capacity', 'Capacity', capacity)];
  // A hold on all lanes can only be ended for all of them.
  if (!lane.closed_by_all) acts.unshift(lane.closed ? act('open', 'Open', plain('open'), { main: true }) : act('close', 'Close', holding('close', 'What waits goes on; new submits are refused.')));
  if (!lane.paused_by_all) acts.unshift(lane.paused ? act('resume', 'Resume', plain('resume'), { main: true }) : act('pause', 'Pause', holding('pause', 'What runs goes on; nothing new starts.')));
  return acts;
}

const holding = (action, text) => async (lane) => {
  const given = await ask({
    title: `${action === 'pause' ? 'Pause' : 'Close'} ${called(lane.name)}?`, text, act: action === 'pause' ? 'Pause' : 'Close',
    fields: [
      { name: 'for', label: 'For how long', hint: '90s, 15m, 2d; empty is until a person ends it' },
      { name: 'reason', label: 'Why (shown to everybody who asks why nothing starts)' },
    ],
  });
  return given && told(lane.name, action, () => post(path(lane.name, `/${action}`), { query: { for: given.for, reason: given.reason } }));
};

async function capacity(lane) {
  const given = await ask({
    title: `Capacity of ${called(lane.name)}`, text: 'How many run at once. What runs goes on when it is lowered.', act: 'Set the capacity',
    fields: [{ name: 'capacity', label: 'Capacity', type: 'number', value: lane.capacity ?? '', hint: 'A whole number from 0, any for no bound, empty for what the configuration says' }],
  });
  if (!given) return null;
  const text = given.capacity;
  const value = text === '' ? 'configured' : text === 'any' ? null : /^\d+$/.test(text) ? Number(text) : text;
  return told(lane.name, 'capacity', () => call('PATCH', path(lane.name), { body: { capacity: value } }));
}

const done = { pause: 'is paused', resume: 'is resumed', close: 'is closed', open: 'is open', capacity: 'has another capacity' };

const told = (name, action, act) => doing(async () => {
  await act();
  const text = called(name);
  return { message: `${text[0].toUpperCase()}${text.slice(1)} ${name === 'all' ? done[action].replace('is ', 'are ').replace('has ', 'have ') : done[action]}` };
});

function newLimit() {
  const name = el('span', { class: 'name' });
  const load = el('span', { class: 'load' });
  const node = el('li', { class: 'row' }, name, load);
  return { node, update: (limit) => {
    set(name, limit.name);
    set(load, `${count(limit.running)} of ${room(limit.capacity)} taken${limit.known ? '' : ' · not in the configuration'}`);
  } };
}
