// How times, numbers and reasons are worded.

// daemonClock knows by how many milliseconds the daemon's clock is ahead of the browser's: ages use the daemon's clock.
export const daemonClock = {
  ahead: 0,
  // heard takes the header Date of an answer, which has a precision of one second.
  heard(text) {
    const ahead = Date.parse(text) - Date.now();
    if (Number.isFinite(ahead)) this.ahead = Math.abs(ahead) < 2000 ? 0 : ahead;
  },
  now() {
    return Date.now() + this.ahead;
  },
};

const two = (n) => String(n).padStart(2, '0');

// clock is the time of day, with the date unless it is today.
export function clock(text) {
  const at = text instanceof Date ? text : new Date(text);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const now = new Date();
  const today = at.getFullYear() === now.getFullYear() && at.getMonth() === now.getMonth() && at.getDate() === now.getDate();
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return today ? time : `${day} ${time}`;
}

// span is a duration in at most two units: 4 s, 3 min 20 s, 2 h 5 min, 3 d 4 h.
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

// number is the end of an ID, r42, by which the command line also knows the operation.
export const number = (id) => id.slice(id.lastIndexOf('_') + 1);

const names = {
  waiting_approval: 'needs approval', failed_manual: 'needs you', failed_retryable: 'tries again',
};

// stateWord is the name of a state on the page.
export const stateWord = (state) => names[state] ?? state;

// why explains why an operation does not run. IDs and the place in the queue are not in the text: IDs are links.
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
    resources: 'the daemon has too many files open',
    draining: 'the daemon is stopping; the next one starts it',
  };
  return texts[waiting.reason] ?? waiting.reason;
}

// placeText is the operation's place in the queue of its lane, '' if it has none.
export const placeText = (waiting) => (waiting?.position ? ` · place ${count(waiting.position)}` : '');

// hold describes the hold on a lane: its end, its reason, and who made it.
export function hold(held) {
  const parts = [];
  if (held.until) parts.push(`until ${clock(held.until)}`);
  if (held.reason) parts.push(held.reason);
  if (held.by) parts.push(`by ${held.by}`);
  return parts.join(', ');
}

// progressText is the phase of an operation and the progress of its work, '' if unknown. The phase 'created' means that
// the work has named none.
export function progressText({ phase, progress }) {
  if (phase === 'created') phase = '';
  if (!progress) return phase ?? '';
  const step = progress.step;
  const at = step && (step.done || step.total) ? `${step.name} ${count(step.done)}${step.total ? ` / ${count(step.total)}` : ''}` : step?.name;
  const all = progress.total ? `${count(progress.done)} / ${count(progress.total)}` : progress.done ? count(progress.done) : '';
  return [...new Set([phase, all, at, step?.phase || progress.phase])].filter((text) => text && text !== 'created').join(' · ');
}

// fraction is the completed part, from 0 to 1; null while it is unknown.
export function fraction(progress) {
  if (!progress?.total) return null;
  const step = progress.step;
  let done = progress.done;
  if (step?.total && done < progress.total) done += Math.min(Math.max(step.done, 0) / step.total, 1);
  return Math.min(done / progress.total, 1);
}

// paramsText is the parameters of an operation, as they are typed on a command line.
export const paramsText = (params) => Object.entries(params ?? {}).map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`).join(' ').slice(0, 300);

// endedText is the result of the work in one line.
export function endedText(op) {
  if (op.error) return op.error.code ? `${op.error.message} (${op.error.code})` : op.error.message;
  if (op.result === 'partial') return op.failed ? `partial: ${count(op.failed)} failed` : 'partial';
  return op.reason ?? '';
}
