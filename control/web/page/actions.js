// The acts that are possible on an operation in each state, and their requests. Which there are, their texts and states
// come from the daemon's table of actions.
import { call, operationPath, post } from './api.js';
import { ask } from './confirm.js';
import { buttons } from './buttons.js';
import { doing, say } from './message.js';
import { number } from './format.js';

export const ended = (state) => state === 'completed' || state === 'cancelled' || state === 'failed';
export const needsPerson = (state) => state === 'failed_manual' || state === 'waiting_approval';

const named = (op) => `${op.group ?? op.endpoint}${op.job ? `/${op.job}` : ''} ${number(op.id)}`;
const staged = (op) => (op.steps?.length ?? 0) > 0;
const place = (op) => op.attention?.step ?? '';
const reason = { name: 'reason', label: 'Why (it stands in the record)' };

// question asks what an act needs to know. It resolves to the answers, or to null when the person leaves it.
function question(op, { title, about, trailing, confirm, danger, reason: why, params = [] }) {
  if (!title) return {};
  const fill = (words) => words.replace('{op}', named(op)).replace('{step}', place(op)).replace('{priority}', op.priority ?? 0);
  const text = fill((op.state === 'trailing' && trailing) || about);
  const fields = params.map(({ name, hint }) => ({ name, label: name[0].toUpperCase() + name.slice(1), type: 'number', hint }));
  return ask({ title: fill(title), text: fields.length ? text : [op.id, text], act: confirm, danger, fields: why ? [...fields, reason] : fields });
}

// send makes the request of an act. It names the step that the page shows, so that the request acts on no other one; a
// retry names a step only if it is optional: otherwise the operation goes on at its current step.
function send(op, act, given) {
  const path = operationPath(op.id, act.action === 'delete' ? '' : `/${act.action}`);
  if (act.action === 'delete') return doing(() => call('DELETE', path));
  if (act.action === 'set') return setValues(op, path);
  const query = { ...act.query };
  for (const { name } of act.params ?? []) query[name] = given[name];
  const names = act.step && !ended(op.state) && (act.action !== 'retry' || op.attention?.optional);
  return doing(() => post(path, { query, body: names ? { reason: given.reason || undefined, step: place(op) || undefined } : undefined }));
}

// done says what an act has done that its button does not show, and where the page goes on.
const restarted = (op, made) => {
  if (made?.id) say(`Started again as ${made.id}`);
  return made?.id ? { ...made, opens: made.id } : made;
};
const done = {
  again: restarted,
  items: restarted,
  pin: (op) => say(`${op.id} is kept until it is unpinned`),
  unpin: (op) => say(`${op.id} is no longer pinned`),
  delete: (op, answer) => {
    say(`${op.id} is deleted`);
    return { ...answer, gone: true };
  },
};

const run = (act) => async (op) => {
  const given = await question(op, act);
  const answer = given && await send(op, act, given);
  return (answer && done[act.name]?.(op, answer)) || answer;
};

// mends reports whether an act helps a step that has failed, also an optional one beside which the operation goes on.
const mends = (act) => act.step && act.states.includes('failed_manual');

// when are the conditions of buttons for operations that have ended, beside the state.
const when = {
  again: (op) => op.result !== 'success' || op.steps?.some((step) => step.status.startsWith('failed')),
  items: (op) => op.result === 'partial' && op.failed > 0,
  pin: (op) => !op.pinned,
  unpin: (op) => op.pinned,
  delete: (op) => !op.pinned,
};

// setValues corrects parameters: one field for each; it sends only changed values.
async function setValues(op, path) {
  const now = { ...op.params, ...op.corrected };
  const lines = Object.entries(now).map(([name, value]) => `params.${name}=${JSON.stringify(value)}`);
  const given = await ask({
    title: `Correct values of ${named(op)}`, text: 'They count from the next try on; retry starts it.', act: 'Set the values',
    fields: [
      { name: 'values', label: 'Values', type: 'area', value: lines.join('\n'), hint: 'One on each line: params.NAME=VALUE or steps.STEP.outputs.NAME=VALUE, as JSON or as plain text; null takes a parameter away.' },
      reason,
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
  return doing(() => post(path, { body: { values, reason: given.reason || undefined } }));
}

function valueOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

// actsOf returns the acts that apply to an operation, the most useful first. few limits them to what fits into a row.
export function actsOf(op, few = false) {
  const over = ended(op.state);
  let acts = buttons.filter((act) => act.states.includes(op.state) && !act.instead && (!when[act.name] || when[act.name](op)));
  if (!over && op.attention?.optional) acts = [...new Set([...buttons.filter(mends), ...acts])];
  if (!over && op.foreign) acts = acts.filter((act) => !act.step && !act.params);
  if (!over && !staged(op)) acts = acts.filter((act) => !act.staged || !mends(act));
  acts = acts.map((act) => buttons.find((other) => other.instead === act.action && op.requests?.includes(act.action)) ?? act);
  if (few) acts = acts.filter((act) => !act.pane && !(act.name === 'cancel' && op.state === 'waiting_approval')).slice(0, 3);
  return acts.map((act) => ({ ...act, run: run(act), label: `${act.text} ${named(op)}` }));
}

// stepActs are the acts on an optional step that failed.
export function stepActs(op, step) {
  if (ended(op.state) || !step.optional || !step.status.startsWith('failed')) return [];
  const about = (action) => () => doing(() => post(operationPath(op.id, `/${action}`), { body: { step: step.name } }));
  return [{ name: `retry-${step.name}`, text: 'Retry', run: about('retry') }, { name: `skip-${step.name}`, text: 'Skip', run: about('skip') }];
}
