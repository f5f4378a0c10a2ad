// The acts that are possible on an operation in each state, and their requests.
import { call, operationPath, post } from './api.js';
import { ask } from './ask.js';
import { doing, say } from './message.js';
import { number } from './words.js';

export const ended = (state) => state === 'completed' || state === 'cancelled' || state === 'failed';
export const needsPerson = (state) => state === 'failed_manual' || state === 'waiting_approval';

const named = (op) => `${op.group ?? op.endpoint}${op.job ? `/${op.job}` : ''} ${number(op.id)}`;
const staged = (op) => (op.steps?.length ?? 0) > 0;
const place = (op) => op.attention?.step ?? '';

// request sends an act without further input.
const request = (action) => (op) => doing(() => post(operationPath(op.id, `/${action}`)));

async function cancel(op) {
  const rest = op.state === 'trailing' ? 'Its result stands; the optional steps that are still at work are ended.' : 'What is at work is ended, and it does not start again by itself.';
  const yes = await ask({ title: `Cancel ${named(op)}?`, text: [op.id, rest], act: 'Cancel the operation', danger: true });
  return yes && request('cancel')(op);
}

async function force(op) {
  const yes = await ask({ title: `Force the cancel of ${named(op)}?`, text: [op.id, 'Its processes are killed at once and cannot tidy up.'], act: 'Kill its processes', danger: true });
  return yes && doing(() => post(operationPath(op.id, '/cancel'), { query: { force: true } }));
}

async function withReason(op, action, title, text, act, danger = false) {
  const given = await ask({ title, text: [op.id, text], act, danger, fields: [{ name: 'reason', label: 'Why (it stands in the record)' }] });
  if (!given) return null;
  const body = { reason: given.reason || undefined, step: place(op) || undefined };
  return doing(() => post(operationPath(op.id, `/${action}`), { body }));
}

// retry names the step if it is optional; otherwise the operation goes on at its current step.
const retry = (op) => doing(() => post(operationPath(op.id, '/retry'), op.attention?.optional ? { body: { step: place(op) } } : {}));
const skip = (op) => withReason(op, 'skip', `Skip step ${place(op)}?`, 'The operation goes on without it.', 'Skip the step');
const reject = (op) => withReason(op, 'reject', `Reject ${named(op)}?`, 'The operation ends as failed.', 'Reject', true);

// approve names the step that the page shows, so that no other step is approved.
const approve = (op) => doing(() => post(operationPath(op.id, '/approve'), { body: { step: place(op) || undefined } }));

async function priority(op) {
  const given = await ask({
    title: `Priority of ${named(op)}`, text: `It is ${op.priority ?? 0} now. Higher ones start first.`, act: 'Set the priority',
    fields: [{ name: 'priority', label: 'Priority', type: 'number', hint: 'A whole number; empty puts it before all others of its lane.' }],
  });
  return given && doing(() => post(operationPath(op.id, '/prioritize'), { query: { priority: given.priority } }));
}

// setValues corrects parameters: one field for each; it sends only changed values.
async function setValues(op) {
  const now = { ...op.params, ...op.corrected };
  const lines = Object.entries(now).map(([name, value]) => `params.${name}=${JSON.stringify(value)}`);
  const given = await ask({
    title: `Correct values of ${named(op)}`, text: 'They count from the next try on; retry starts it.', act: 'Set the values',
    fields: [
      { name: 'values', label: 'Values', type: 'area', value: lines.join('\n'), hint: 'One on each line: params.NAME=VALUE or steps.STEP.outputs.NAME=VALUE, as JSON or as plain text; null takes a parameter away.' },
      { name: 'reason', label: 'Why (it stands in the record)' },
    ],
  });
  if (!given) return null;
  const values = {};
  for (const line of given.values.split('\n').map((text) => text.trim()).filter((text) => text && !lines.includes(text))) {
    const at = line.indexOf('=');
    if (at < 1) {
      say(`The line ${line} has no name and no equals sign: nothing was set`, true);
      return null;
    }
    values[line.slice(0, at).trim()] = valueOf(line.slice(at + 1).trim());
  }
  if (Object.keys(values).length === 0) {
    say('No line was changed: nothing was set');
    return null;
  }
  return doing(() => post(operationPath(op.id, '/set'), { body: { values, reason: given.reason || undefined } }));
}

function valueOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

// again makes a new operation that retries an ended one.
const again = (query) => async (op) => {
  const made = await doing(() => post(operationPath(op.id, '/retry'), { query }));
  if (made?.id) say(`Started again as ${made.id}`);
  return made?.id ? { ...made, opens: made.id } : made;
};

const pin = (pinned) => async (op) => {
  const done = await doing(() => post(operationPath(op.id, '/pin'), { query: { pinned } }));
  if (done) say(pinned ? `${op.id} is kept until it is unpinned` : `${op.id} is no longer pinned`);
  return done;
};

async function remove(op) {
  const yes = await ask({ title: `Delete ${named(op)}?`, text: [op.id, 'Its record, its log and its files are removed for ever.'], act: 'Delete it', danger: true });
  if (!yes) return null;
  const done = await doing(() => call('DELETE', operationPath(op.id)));
  if (done) say(`${op.id} is deleted`);
  return done && { ...done, gone: true };
}

// all are the acts by name: the text of the button, what it does, and to which operations it applies.
const all = {
  approve: { text: 'Approve', run: approve, main: true },
  reject: { text: 'Reject', run: reject, danger: true },
  retry: { text: 'Retry', run: retry, main: true },
  again: { text: 'Retry', run: again({}) },
  items: { text: 'Retry failed items', run: again({ failed_items: true }) },
  resume: { text: 'Resume', run: request('resume'), main: true },
  pause: { text: 'Pause', run: request('pause') },
  skip: { text: 'Skip step', run: skip },
  set: { text: 'Set', run: setValues },
  priority: { text: 'Priority', run: priority },
  pin: { text: 'Pin', run: pin(true) },
  unpin: { text: 'Unpin', run: pin(false) },
  cancel: { text: 'Cancel', run: cancel, danger: true },
  force: { text: 'Force cancel', run: force, danger: true },
  delete: { text: 'Delete', run: remove, danger: true },
};

const byState = {
  scheduled: ['pause', 'priority', 'cancel'],
  queued: ['pause', 'priority', 'cancel'],
  running: ['pause', 'cancel'],
  paused: ['resume', 'priority', 'cancel'],
  waiting_approval: ['approve', 'reject', 'skip', 'set', 'cancel'],
  failed_retryable: ['retry', 'pause', 'skip', 'set', 'priority', 'cancel'],
  failed_manual: ['retry', 'skip', 'set', 'cancel'],
  trailing: ['cancel'],
};

// actsOf returns the acts that apply to an operation, the most useful first. few limits them to what fits into a row.
export function actsOf(op, few = false) {
  let names = byState[op.state] ?? [];
  if (op.attention?.optional) names = [...new Set(['retry', 'skip', 'set', ...names])];
  if (op.foreign) names = names.filter((name) => ['pause', 'resume', 'cancel'].includes(name));
  if (op.requests?.includes('cancel')) names = names.map((name) => (name === 'cancel' ? 'force' : name));
  if (!staged(op)) names = names.filter((name) => name !== 'skip' && name !== 'set');
  if (ended(op.state)) {
    names = [];
    if (op.result !== 'success' || op.steps?.some((step) => step.status.startsWith('failed'))) names.push('again');
    if (op.result === 'partial' && op.failed > 0) names.push('items');
    names.push(op.pinned ? 'unpin' : 'pin');
    if (!op.pinned) names.push('delete');
  }
  if (few) names = names.filter((name) => !['set', 'priority', 'pin', 'unpin', 'delete', 'items'].includes(name) && !(name === 'cancel' && op.state === 'waiting_approval')).slice(0, 3);
  return names.map((name) => ({ name, ...all[name], label: `${all[name].text} ${named(op)}` }));
}

// stepActs are the acts on an optional step that failed.
export function stepActs(op, step) {
  if (ended(op.state) || !step.optional || !step.status.startsWith('failed')) return [];
  const about = (action) => () => doing(() => post(operationPath(op.id, `/${action}`), { body: { step: step.name } }));
  return [{ name: `retry-${step.name}`, text: 'Retry', run: about('retry') }, { name: `skip-${step.name}`, text: 'Skip', run: about('skip') }];
}
