// How long to wait before something is tried again: longer each time, and not at the same moment as all others.

const first = 400;
const longest = 15000;

// Backoff counts what failed in a row.
export class Backoff {
  failures = 0;

  reset() {
    this.failures = 0;
  }

  // wait resolves after the time that is due, or at once when the browser is back on the network, or when signal is aborted.
  wait(signal, least = 0) {
    const most = Math.min(first * 2 ** this.failures, longest);
    this.failures = Math.min(this.failures + 1, 16);
    return pause(Math.max(least, most * (0.6 + 0.4 * Math.random())), signal);
  }
}

export function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      removeEventListener('online', done);
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    addEventListener('online', done);
    signal?.addEventListener('abort', done);
    if (signal?.aborted) done();
  });
}
