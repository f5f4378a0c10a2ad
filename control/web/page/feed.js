// Follows events: one connection to /api/v1/events for the whole page. It reconnects by itself, after the last event
// that it received.
import { open, Refused } from './api.js';
import { Backoff } from './backoff.js';
import { events } from './sse.js';

// silence is after how many milliseconds without any byte the connection counts as lost: the daemon sends a heartbeat
// every 15 seconds.
const silence = 45000;
// old is after how many milliseconds without a connection missed events are not requested: everything is then read
// again.
const old = 5 * 60000;

export class Feed {
  // onOpen is called with each connection: what is shown may be outdated. onEvent gets each event, onLine
  // {connected, since}.
  constructor({ onOpen, onEvent, onLine }) {
    this.onOpen = onOpen;
    this.onEvent = onEvent;
    this.onLine = onLine;
    this.last = '';
    this.since = null; // since when the connection is lost, null while connected
    this.stopping = null;
  }

  start() {
    if (this.stopping) return;
    this.stopping = new AbortController();
    this.run(this.stopping.signal);
  }

  // stop ends the connection; start makes a new one.
  stop() {
    this.stopping?.abort();
    this.stopping = null;
    this.last = '';
  }

  async run(signal) {
    const backoff = new Backoff();
    while (!signal.aborted) {
      try {
        await this.follow(signal, backoff);
      } catch (err) {
        if (err instanceof Refused && err.status === 401) {
          this.stop();
          return;
        }
        if (err instanceof Refused && err.status === 400) this.last = ''; // the daemon does not know the event number
      }
      if (signal.aborted) return;
      this.since ??= new Date();
      this.onLine({ connected: false, since: this.since });
      await backoff.wait(signal);
    }
  }

  // follow reads one connection until it ends.
  async follow(signal, backoff) {
    const cut = new AbortController();
    const end = () => cut.abort();
    signal.addEventListener('abort', end);
    let watchdog = setTimeout(end, silence);
    const alive = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(end, silence);
    };
    try {
      if (this.since && Date.now() - this.since > old) this.last = '';
      const headers = this.last === '' ? {} : { 'Last-Event-ID': this.last };
      const answer = await open('GET', '/api/v1/events', { headers, signal: cut.signal });
      this.since = null;
      this.onLine({ connected: true, since: null });
      this.onOpen();
      for await (const event of events(answer.body, alive)) {
        backoff.reset();
        if (event.id !== null) this.last = event.id;
        if (event.type !== '') this.onEvent(JSON.parse(event.data));
      }
    } finally {
      clearTimeout(watchdog);
      signal.removeEventListener('abort', end);
    }
  }
}
