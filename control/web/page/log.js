// The log of an operation, updated live. The page holds only its end, so the cost does not depend on the length.
import { ended } from './actions.js';
import { open, operationPath, Refused } from './api.js';
import { Backoff } from './backoff.js';
import { button, el, set } from './dom.js';
import { doing } from './message.js';
import { save } from './save.js';
import { events } from './sse.js';
import { Tail } from './tail.js';
import { bytes } from './format.js';

const window_ = 64 << 10; // bytes that are read at once backwards

export class Log {
  constructor(id) {
    this.id = id;
    this.tail = new Tail(`Log of ${id}`, () => this.tell());
    this.stepTail = new Tail('');
    this.stepTail.node.hidden = true;
    this.name = '';
    this.offset = null; // where the stream continues, null before the first read
    this.over = false;
    this.following = null;
    this.line = el('span', { class: 'dim' });
    this.earlier = button('Earlier', () => this.showEarlier(), { hidden: true, data: { act: 'earlier' } });
    this.whole = button('Whole log', () => this.step(''), { hidden: true, data: { act: 'whole' } });
    this.keep = button('Save', () => doing(async () => save(await this.fetch(this.name), `${id}${this.name && `.${this.name}`}.log`)), { data: { act: 'save' }, 'aria-label': 'Save the log' });
    this.title = el('h3', { text: 'Log' });
    this.node = el('div', { class: 'part' }, el('div', { class: 'bar' }, this.title, this.line, el('span', { class: 'acts' }, this.whole, this.earlier, this.keep)),
      this.tail.node, this.stepTail.node);
    this.seen = () => {
      if (document.hidden) this.rest();
      else if (this.op) this.follow(this.op);
    };
    document.addEventListener('visibilitychange', this.seen);
  }

  // follow is called whenever the operation was read, and continues the log.
  follow(op) {
    this.op = op;
    if (this.name) this.readStep();
    if (this.over || this.following || document.hidden) return;
    if (op.foreign) {
      set(this.line, 'is kept by another program');
      return;
    }
    this.following = new AbortController();
    this.run(this.following.signal);
  }

  async run(signal) {
    const backoff = new Backoff();
    while (!signal.aborted && !this.over) {
      try {
        await this.read(signal, backoff);
      } catch (err) {
        if (err instanceof Refused && err.status < 500) {
          set(this.line, err.message);
          this.over = true;
        } else if (!(err instanceof Refused) && err.name !== 'AbortError' && err.name !== 'Error' && err.name !== 'TypeError') {
          throw err;
        }
      }
      if (signal.aborted || this.over) return;
      set(this.line, 'is cut off; it goes on when the daemon answers');
      await backoff.wait(signal);
    }
  }

  // lineAt returns the start of the first line at or after a byte.
  async lineAt(byte, signal) {
    if (byte <= 0) return 0;
    const answer = await open('GET', operationPath(this.id, '/log'), { headers: { Range: `bytes=${byte - 1}-${byte + 8191}` }, signal });
    return byte + Math.max(0, new Uint8Array(await answer.arrayBuffer()).indexOf(10)); // byte if no line end
  }

  async read(signal, backoff) {
    if (this.offset === null) {
      this.offset = await this.lineAt(this.op.log_bytes - window_, signal);
      this.tail.begin(this.offset);
      this.tell();
    }
    const answer = await open('GET', operationPath(this.id, '/stream'), { query: { format: 'sse', offset: this.offset }, signal });
    set(this.line, ended(this.op.state) ? '' : 'goes on');
    for await (const event of events(answer.body)) {
      backoff.reset();
      if (event.type === 'log') this.tail.add(`${event.data}\n`, Number(event.id));
      if (event.id) this.offset = Number(event.id);
      if (event.type === 'end_json') {
        this.over = true;
        set(this.line, `ended, ${bytes(this.offset)}`);
      }
    }
  }

  // tell updates the buttons for parts of the log that are not shown.
  tell() {
    this.earlier.hidden = this.name !== '' || this.tail.from === 0;
    this.earlier.disabled = this.tail.full();
    this.earlier.title = this.tail.full() ? 'The page holds no more: save the log to read all of it' : '';
  }

  async showEarlier() {
    const to = this.tail.from;
    const from = Math.max(0, to - window_);
    await doing(async () => {
      const answer = await open('GET', operationPath(this.id, '/log'), { headers: { Range: `bytes=${from}-${to - 1}` } });
      this.tail.prepend(new Uint8Array(await answer.arrayBuffer()), from);
      this.tell();
    });
  }

  fetch(step, headers) {
    return open('GET', operationPath(this.id, '/log'), { query: { step }, headers });
  }

  // step shows the output of one step, or the whole log again with ''.
  step(name) {
    this.name = name;
    this.whole.hidden = name === '';
    this.tail.node.hidden = name !== '';
    this.stepTail.node.hidden = name === '';
    set(this.title, name ? `Log of step ${name}` : 'Log');
    this.stepTail.node.setAttribute('aria-label', `Log of step ${name}`);
    this.tell();
    if (name) {
      this.stepTail.begin(0);
      this.readStep();
      this.stepTail.node.focus();
    } else {
      this.tail.end();
      this.tail.node.focus();
    }
  }

  async readStep() {
    const { name } = this;
    let text = '';
    try {
      text = await (await this.fetch(name, { Range: `bytes=-${window_}` })).text();
    } catch (err) {
      if (!(err instanceof Refused) || err.status !== 416) text = err.message; // 416: the step wrote nothing
    }
    if (this.name === name) this.stepTail.replace(text);
  }

  rest() {
    this.following?.abort();
    this.following = null;
  }

  stop() {
    this.rest();
    this.over = true;
    document.removeEventListener('visibilitychange', this.seen);
    this.tail.stop();
    this.stepTail.stop();
  }
}
