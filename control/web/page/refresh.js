// Reads data again when it may have changed: at most one read at a time, many changes in one read, and at a rate that
// the daemon can easily answer.
import { Refused, Unreachable } from './api.js';

const together = 60; // changes within this time share one read, in milliseconds
const fastest = 400; // the minimum and maximum from the end of one read to the next
const slowest = 4000;

export class Refresh {
  // read(signal) reads and shows; failed(err) gets the error of a read, null on success.
  constructor(read, failed = () => {}) {
    this.read = read;
    this.failed = failed;
    this.timer = null;
    this.reading = null;
    this.again = false;
    this.next = 0; // the earliest time of the next read
  }

  // mark notes that the data may be outdated, and schedules a read.
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

  // stop cancels a scheduled and a current read.
  stop() {
    clearTimeout(this.timer);
    this.timer = null;
    this.again = false;
    this.reading?.abort();
    this.reading = null;
  }

  // now cancels a current read and reads at once: the page needs other data than before.
  now() {
    this.stop();
    this.mark(0);
  }

  async run() {
    this.timer = null;
    const reading = this.reading = new AbortController();
    const began = performance.now();
    let wait = null; // after this time it is read again, although nothing changed
    let least = 0;
    try {
      await this.read(reading.signal);
      if (this.reading === reading) this.failed(null);
    } catch (err) {
      if (this.reading !== reading || err.name === 'AbortError') return;
      if (!(err instanceof Refused || err instanceof Unreachable)) throw err;
      // Without an answer, a retry may succeed; a refusal says when to retry.
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
