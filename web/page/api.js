// Asks the daemon. All that the page knows comes through here, with the token that was typed.
import { token } from './token.js';
import { daemonClock } from './words.js';

// The daemon may stand below a path of its own, so its addresses are relative to the page.
const root = new URL('../', document.baseURI);

// Refused is an answer that says no, with the sentence of the daemon.
export class Refused extends Error {
  constructor(status, problem, again) {
    super(problem?.error || `The daemon answered ${status}`);
    this.status = status;
    this.problem = problem ?? {};
    this.again = again; // seconds after which to ask again, 0 when the daemon says nothing of it
  }
}

// Unreachable says that no answer came.
export class Unreachable extends Error {
  constructor() {
    super('The daemon does not answer');
  }
}

export function address(path, query = {}) {
  const url = new URL(path.replace(/^\//, ''), root);
  for (const [name, value] of Object.entries(query)) {
    if (value !== '' && value !== null && value !== undefined) url.searchParams.set(name, value);
  }
  return url;
}

// open sends a request and returns its answer, whose body is not read yet. It throws Refused, Unreachable, or the AbortError of signal.
export async function open(method, path, { query, body, headers, signal } = {}) {
  const all = { ...headers };
  const used = token.value;
  if (used) all.Authorization = `Bearer ${used}`;
  if (body !== undefined) all['Content-Type'] = 'application/json';
  let answer;
  try {
    answer = await fetch(address(path, query), {
      method, headers: all, body: body === undefined ? undefined : JSON.stringify(body),
      signal, cache: 'no-store', credentials: 'same-origin', redirect: 'error',
    });
  } catch (err) {
    if (err.name === 'AbortError') throw err;
    throw new Unreachable();
  }
  daemonClock.heard(answer.headers.get('Date'));
  if (answer.ok) return answer;
  let problem = null;
  try {
    problem = await answer.json();
  } catch { /* the status says enough */ }
  if (answer.status === 401 && used === token.value) token.refused(); // else another one was typed meanwhile
  throw new Refused(answer.status, problem, Number(answer.headers.get('Retry-After')) || 0);
}

// call sends a request and returns the JSON of its answer, null when it has none.
export async function call(method, path, options) {
  const answer = await open(method, path, options);
  try {
    const text = await answer.text();
    return text === '' ? null : JSON.parse(text);
  } catch (err) {
    if (err.name === 'AbortError') throw err;
    throw new Unreachable(); // it was cut off
  }
}

export const get = (path, query, signal) => call('GET', path, { query, signal });
export const post = (path, { query, body } = {}) => call('POST', path, { query, body });

// operationPath is the address of an operation, or of something of it.
export const operationPath = (id, rest = '') => `/api/v1/operations/${encodeURIComponent(id)}${rest}`;
