// How times, numbers and reasons are said.

// daemonClock keeps by how much the clock of the daemon is ahead of that of this machine, in milliseconds: ages are told by the former.
export const daemonClock = {
  ahead: 0,
  // heard takes the header Date of an answer, which is exact to a second.
  heard(text) {
    const ahead = Date.parse(text) - Date.now();
    if (Number.isFinite(ahead)) this.ahead = Math.abs(ahead) < 2000 ? 0 : ahead;
  },
  now() {
    return Date.now() + this.ahead;
  },
};

const two = (n) => String(n).padStart(2, '0');

// clock is the time of day, with the date when that is not today.
export function clock(text) {
  const at = text instanceof Date ? text : new Date(text);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const now = new Date();
  const today = at.getFullYear() === now.getFullYear() && at.getMonth() === now.getMonth() && at.getDate() === now.getDate();
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return today ? time : `${day} ${time}`;
}

// span is a length of time in two units at most: 4 s, 3 min 20 s, 2 h 5 min, 3 d 4 h.
export function span(seconds) {
  if (seconds < 0.5) return '< 1 s';
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return s % 60 && s < 600 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${Math.floor(s / 60)} min`;
  if (s < 86400) return Math.floor(s % 3600 / 60) ? `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min` : `${Math.floor(s / 3600)} h`;
  return Math.floor(s % 86400 / 3600) ? `${Math.floor(s / 86400)} d ${Math.floor(s % 86400 / 3600)} h` : `${Math.floor(s / 86400)} d`;
}

export function bytes(n) {
  if (n < 1024) return `${n} B`;
  let value = n;
  for (const unit of ['KiB', 'MiB', 'GiB', 'TiB']) {
    value /= 1024;
    if (value < 1024 || unit === 'TiB') return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${unit}`;
  }
  return '';
}

export const count = (n) => n.toLocaleString('en').replaceAll(',', '\u202f');

// number is the end of an ID, r42, by which the command line knows it too.
export const number = (id) => id.slice(id.lastIndexOf('_') + 1);

const names = {
  waiting_approval: 'needs approval', failed_manual: 'needs you', failed_retryable: 'tries again',
};

// stateWord is how a state is called on the page.
export const stateWord = (state) => names[state] ?? state;

// why says why an operation does not run. Its IDs and its place are said apart: the former are links.
export function why(waiting) {
  const until = waiting.until ? ` until ${clock(waiting.until)}` : '';
  const note = waiting.note ? ` (${waiting.note})` : '';
  const texts = {
    starting: 'about to start',
    lane_full: `lane ${waiting.lane} is full`,
    lane_paused: `lane ${waiting.lane} is paused${until}${note}`,
    rate: `lane ${waiting.lane} starts the next one${waiting.until ? ` at ${clock(waiting.until)}` : ' later'}`,
    limit: `limit ${waiting.limit} is reached`,
    key: `key ${waiting.key} is taken`,
    after: waiting.held_by ? 'comes after' : 'comes after another operation',
    not_before: waiting.until ? `starts at ${clock(waiting.until)}` : 'its time has not come',
    unknown_lane: `the daemon has no lane ${waiting.lane}`,
    unknown_limit: `the daemon has no limit ${waiting.limit}`,
    draining: 'the daemon is stopping; the next one starts it',
  };
  return texts[waiting.reason] ?? waiting.reason;
}

// placeText is where in the queue of its lane an operation stands, '' when it has no place there.
export const placeText = (waiting) => (waiting?.position ? ` · place ${count(waiting.position)}` : '');

// hold says how a lane is held: since a person, or its breaker, did so.
export function hold(held) {
  const parts = [];
  if (held.until) parts.push(`until ${clock(held.until)}`);
  if (held.reason) parts.push(held.reason);
  if (held.by) parts.push(`by ${held.by}`);
  return parts.join(', ');
}

// progressText is in which phase an operation is and how far its work is, '' when nothing is known.
export function progressText({ phase, progress }) {
  if (!progress) return phase ?? '';
  const step = progress.step;
  const at = step && (step.done || step.total) ? `${step.name} ${count(step.done)}${step.total ? ` / ${count(step.total)}` : ''}` : step?.name;
  const all = progress.total ? `${count(progress.done)} / ${count(progress.total)}` : progress.done ? count(progress.done) : '';
  return [...new Set([phase, all, at, step?.phase || progress.phase])].filter(Boolean).join(' · ');
}

// fraction is how much is done, from 0 to 1; null while nobody knows.
export function fraction(progress) {
  if (!progress?.total) return null;
  const step = progress.step;
  let done = progress.done;
  if (step?.total && done < progress.total) done += Math.min(Math.max(step.done, 0) / step.total, 1);
  return Math.min(done / progress.total, 1);
}

// paramsText is what an operation was given, as one types it.
export const paramsText = (params) => Object.entries(params ?? {}).map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`).join(' ').slice(0, 300);

// ended is how the work ended, in one line.
export function endedText(op) {
  if (op.error) return op.error.code ? `${op.error.message} (${op.error.code})` : op.error.message;
  if (op.result === 'partial') return op.failed ? `partial: ${count(op.failed)} failed` : 'partial';
  return op.reason ?? '';
}
