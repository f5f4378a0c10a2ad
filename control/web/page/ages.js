// Keeps ages up to date: one timer for the whole page, without requests.
import { el, set } from './dom.js';
import { clock, daemonClock, span } from './format.js';

// age makes an element with the age of a time, or the duration since then; since(element, time, 'ago' or 'for') sets
// it. Its tooltip is the time itself.
export const age = () => el('time', { class: 'age' });

export function since(node, at, how = 'for') {
  if (!at) {
    delete node.dataset.since;
    set(node, '');
    node.title = '';
    return;
  }
  node.dataset.how = how;
  if (node.dataset.since !== at) {
    node.dataset.since = at;
    node.dateTime = at;
    node.title = clock(at);
  }
  tell(node, daemonClock.now());
}

function tell(node, now) {
  const text = span((now - new Date(node.dataset.since)) / 1000);
  set(node, node.dataset.how === 'ago' ? `${text} ago` : `for ${text}`);
}

setInterval(() => {
  if (document.hidden) return;
  const now = daemonClock.now();
  for (const node of document.querySelectorAll('[data-since]')) tell(node, now);
}, 1000);
