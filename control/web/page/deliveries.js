// The deliveries of an operation's result to its targets.
import { actbar } from './actionbar.js';
import { post } from './api.js';
import { ask } from './confirm.js';
import { attribute, el, keyed, set } from './dom.js';
import { doing } from './message.js';
import { bytes, clock, stateWord } from './format.js';

const path = (entry, action) => `/api/v1/outbox/${encodeURIComponent(entry)}/${action}`;

// deliveryActs are the acts on an outbox entry that is not done.
export function deliveryActs(entry, target) {
  return [
    { name: `retry-${entry}`, text: 'Retry', label: `Retry the delivery to ${target}`, run: () => doing(() => post(path(entry, 'retry'))) },
    { name: `drop-${entry}`, text: 'Drop', danger: true, label: `Drop the delivery to ${target}`, run: async () => {
      const given = await ask({
        title: 'Drop this delivery?', text: [target, 'It is not tried again.'], act: 'Drop it', danger: true, fields: [{ name: 'reason', label: 'Why (it is logged)' }],
      });
      return given && doing(() => post(path(entry, 'drop'), { body: { reason: given.reason || undefined } }));
    } },
  ];
}

export class Deliveries {
  constructor(acted) {
    this.list = el('ul', { class: 'steps' });
    this.node = el('div', { class: 'part', hidden: true }, el('h3', { text: 'Deliveries' }), this.list);
    this.show = keyed(this.list, ({ entry }) => entry, () => newDelivery(acted));
  }

  update(op) {
    const all = op.deliveries ?? [];
    this.node.hidden = all.length === 0;
    this.show(all.map((delivery) => ({ ...delivery, entry: `${op.id}.${delivery.target}-${delivery.kind}` })));
  }
}

function newDelivery(acted) {
  const state = el('span', { class: 'state' });
  const name = el('span', { class: 'name' });
  const size = el('span', { class: 'age' });
  const acts = actbar(el('span', { class: 'acts' }), acted);
  const text = el('span', { class: 'text' });
  const node = el('li', {}, state, name, size, acts.node, text);
  return { node, update: (it) => {
    set(state, stateWord(it.status));
    attribute(node, 'data-state', it.status);
    set(name, `${it.send} to ${it.kind}`);
    set(size, it.output ? bytes(it.output.bytes) : '');
    set(text, [it.output?.location ?? it.name, it.output?.delivered_at && clock(it.output.delivered_at), it.error].filter(Boolean).join(' · '));
    acts.update(it, it.status === 'pending' || it.status === 'failed_manual' ? deliveryActs(it.entry, it.name ?? it.kind) : []);
  } };
}
