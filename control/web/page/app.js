// The entry point: asks for a token if one is needed, follows the events, and shows the view that the address names.
import { get, Refused } from './api.js';
import { attribute, set } from './dom.js';
import { Feed } from './feed.js';
import { Jobs } from './jobs.js';
import { Lanes } from './lanes.js';
import { Operations } from './list.js';
import { Outbox } from './outbox.js';
import { Refresh } from './refresh.js';
import { current } from './route.js';
import { form, token } from './token.js';
import { clock, count } from './format.js';

const main = document.getElementById('main');
const nav = document.getElementById('nav');
const line = document.getElementById('line');
const counts = document.getElementById('counts');
const forget = document.getElementById('forget');

const kinds = { operations: Operations, lanes: Lanes, outbox: Outbox, jobs: Jobs };
let view = null;
let shown = '';
let asking = false; // for a token
let connected = false;

const feed = new Feed({
  onOpen: () => {
    numbers.mark(0);
    view?.opened();
  },
  onEvent: (event) => {
    if (event.type !== 'progress' && event.type !== 'waiting' && event.type !== 'sweep') numbers.mark();
    view?.event(event);
  },
  onLine: (now) => {
    connected = now.connected;
    line.className = connected ? 'live' : 'lost';
    set(line, connected ? 'live' : `Connection lost since ${clock(now.since)}. What is shown is from then; it is tried again and again.`);
  },
});

// numbers are the counts of all operations, independent of the lists.
const numbers = new Refresh(async (signal) => {
  const { states, outbox } = await get('/api/v1/stats', {}, signal);
  const { total: person } = await get('/api/v1/operations', { needs_attention: true, limit: 0 }, signal);
  const waiting = (states.queued ?? 0) + (states.scheduled ?? 0) + (states.failed_retryable ?? 0);
  const parts = [`${count(states.running ?? 0)} running`, `${count(waiting)} waiting`];
  if (states.paused) parts.push(`${count(states.paused)} paused`);
  if (person) parts.unshift(`${count(person)} ${person === 1 ? 'needs' : 'need'} you`);
  set(counts, parts.join(' · '));
  attribute(counts, 'data-person', person > 0);
  document.title = person ? `(${person}) jobdir` : 'jobdir';
  const stuck = outbox.failed_manual;
  set(nav.querySelector('[data-view=outbox]'), stuck ? `Outbox (${count(stuck)})` : 'Outbox');
}, (err) => {
  if (err instanceof Refused && err.status === 503) set(counts, err.message);
});

function show() {
  if (asking) return;
  const route = current();
  if (shown !== route.view) {
    const moved = shown !== '';
    view?.stop();
    view = new kinds[route.view]();
    shown = route.view;
    main.replaceChildren(view.node);
    if (connected) view.opened();
    if (moved && !nav.contains(document.activeElement)) main.focus({ preventScroll: true });
  }
  for (const link of nav.children) attribute(link, 'aria-current', link.dataset.view === route.view ? 'page' : null);
  view.show(route);
}

// begin shows the page. It is called once the daemon accepts the token, or needs none.
function begin() {
  asking = false;
  nav.hidden = false;
  forget.hidden = token.value === '';
  shown = '';
  show();
  feed.start();
}

// ask shows the form for a token, and nothing else until one is accepted.
function ask(reason = '') {
  if (asking) return;
  asking = true;
  feed.stop();
  numbers.stop();
  view?.stop();
  view = null;
  nav.hidden = true;
  forget.hidden = true;
  set(counts, '');
  set(line, '');
  const asked = form(reason, async (text) => {
    token.keep(text);
    try {
      await get('/api/v1/jobs');
    } catch (err) {
      token.keep('');
      return err instanceof Refused && err.status === 401 ? 'The daemon does not know this token.' : err.message;
    }
    begin();
    main.focus({ preventScroll: true });
    return '';
  });
  main.replaceChildren(asked.node);
  asked.focus();
}

token.onRefused = () => {
  if (asking) return;
  const had = token.value !== '';
  token.keep('');
  ask(had ? 'The daemon does not know the token of this tab any more.' : '');
};

forget.addEventListener('click', () => {
  token.keep('');
  ask();
});

document.getElementById('skip').addEventListener('click', (event) => {
  event.preventDefault(); // the address decides what is shown
  main.focus();
});

addEventListener('hashchange', show);

// A hidden tab holds no connection: browsers allow only a few to one host, and another tab may need them.
document.addEventListener('visibilitychange', () => {
  if (document.hidden) feed.stop();
  else if (!asking) feed.start();
});

addEventListener('keydown', (event) => {
  if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, textarea, select, dialog')) return;
  const first = main.querySelector('input[type=search]');
  if (!first) return;
  event.preventDefault();
  first.focus();
});

begin();
