// How long to wait before a retry: longer each time, and with jitter.

const first = 400;
const longest = 15000;

// Backoff counts consecutive failures.
export class Backoff {
  failures = 0;

  reset() {
    this.failures = 0;
  }

  // wait resolves after the delay, or at once when the browser is online again, or when signal is aborted.
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
