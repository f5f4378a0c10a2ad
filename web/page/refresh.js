// Reads something again when it may have changed: at most one reading at a time, many changes in one, and never faster than the daemon answers easily.
import { Refused, Unreachable } from './api.js';

const together = 60; // what happens within this time is read at once, in milliseconds
const slowest = 4000;

export class Refresh {
  // read(signal) reads and shows; failed(err) is told of what went wrong, null when it went well.
  constructor(read, failed = () => {}) {
    this.read = read;
    this.failed = failed;
    this.timer = null;
    this.reading = null;
    this.again = false;
    this.pace = together;
  }

  // mark says that what was read may be old.
  mark(delay = this.pace) {
    if (this.reading) this.again = true;
    else this.timer ??= setTimeout(() => this.run(), delay);
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
    let wait = null;
    try {
      await this.read(reading.signal);
      if (this.reading === reading) this.failed(null);
    } catch (err) {
      if (this.reading !== reading || err.name === 'AbortError') return;
      if (!(err instanceof Refused || err instanceof Unreachable)) throw err;
      // Who cannot be reached is asked again once the events are back; a refusal says itself when.
      if (err instanceof Refused && err.status >= 500) wait = 1000 * (err.again || 2);
      this.failed(err);
    } finally {
      if (this.reading === reading) {
        this.reading = null;
        this.pace = Math.min(Math.max(together, 3 * (performance.now() - began)), slowest);
        if (wait !== null || this.again) this.mark(Math.max(wait ?? 0, this.pace));
        this.again = false;
      }
    }
  }
}
