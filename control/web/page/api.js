// Sends requests to the daemon. The page gets all of its data through this file, with the token that was typed.
import { token } from './token.js';
import { daemonClock } from './format.js';

// A proxy may serve the daemon below a path of its own, so its addresses are relative to the page.
const root = new URL('../', document.baseURI);

// Refused is a refusal of the daemon, with its message.
export class Refused extends Error {
  constructor(status, problem, again) {
    super(problem?.error || `The daemon answered ${status}`);
    this.status = status;
    this.problem = problem ?? {};
    this.again = again; // seconds after which to retry, 0 if the daemon did not say
  }
}

// Unreachable means that no answer came.
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

// open sends a request and returns its answer with an unread body. It throws Refused, Unreachable, or the AbortError of
// signal.
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
  } catch { /* the status is enough */ }
  if (answer.status === 401 && used === token.value) token.refused(); // else another token has been typed since
  throw new Refused(answer.status, problem, Number(answer.headers.get('Retry-After')) || 0);
}

// call sends a request and returns the JSON of its answer, null without a body.
export async function call(method, path, options) {
  const answer = await open(method, path, options);
  try {
    const text = await answer.text();
    return text === '' ? null : JSON.parse(text);
  } catch (err) {
    if (err.name === 'AbortError') throw err;
    throw new Unreachable(); // the answer was cut off
  }
}

export const get = (path, query, signal) => call('GET', path, { query, signal });
export const post = (path, { query, body } = {}) => call('POST', path, { query, body });

// operationPath is the path of an operation, or of a part of it.
export const operationPath = (id, rest = '') => `/api/v1/operations/${encodeURIComponent(id)}${rest}`;
