// Reads something again when it may have changed: at most one reading at a time, many changes in one, and never faster than the daemon answers easily.
import { Refused, Unreachable } from './api.js';

const together = 60; // what happens within this time is read at once, in milliseconds
const fastest = 400; // the least and the most from the end of one reading to the next
const slowest = 4000;

export class Refresh {
  // read(signal) reads and shows; failed(err) is told of what went wrong, null when it went well.
  constructor(read, failed = () => {}) {
    this.read = read;
    this.failed = failed;
    this.timer = null;
    this.reading = null;
    this.again = false;
    this.next = 0; // before this time nothing is read again
  }

  // mark says that what was read may be old.
  mark(delay = Math.max(together, this.next - performance.now())) {
    if (this.reading) {
      this.again = true;
      return;
    }
    const due = performance.now() + delay;
    if (this.timer !== null && this.due <= due) return;
    clearTimeout(this.timer);
    this.due = due;
    this.timer = setTimeout(() => this.run(), delay);
  }

  // stop forgets what is to be read, and leaves off what is being read.
  stop() {
    clearTimeout(this.timer);
    this.timer = null;
    this.again = false;
    this.reading?.abort();
    this.reading = null;
  }

  // now stops what is under way and reads at once: what is asked for is another thing than before.
  now() {
    this.stop();
    this.mark(0);
  }

  async run() {
    this.timer = null;
    const reading = this.reading = new AbortController();
    const began = performance.now();
    let wait = null; // after which time it is read again although nothing changed
    let least = 0;
    try {
      await this.read(reading.signal);
      if (this.reading === reading) this.failed(null);
    } catch (err) {
      if (this.reading !== reading || err.name === 'AbortError') return;
      if (!(err instanceof Refused || err instanceof Unreachable)) throw err;
      // What does not answer may have lost this one answer alone; a refusal says itself when to ask again.
      if (err instanceof Unreachable) wait = 5000;
      else if (err.status >= 500) wait = least = 1000 * (err.again || 2);
      this.failed(err);
    } finally {
      if (this.reading === reading) {
        this.reading = null;
        const now = performance.now();
        this.next = now + Math.max(least, Math.min(Math.max(fastest, 3 * (now - began)), slowest));
        if (this.again) this.mark();
        else if (wait !== null) this.mark(wait);
        this.again = false;
      }
    }
  }
}
