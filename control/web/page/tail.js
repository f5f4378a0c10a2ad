// Shows the end of a growing text. It drops excess text at the beginning, and stays scrolled to the end if it was
// there.
import { el } from './dom.js';

const least = 256 << 10; // characters that are kept
const most = 1 << 20; // the same after a person requested earlier ones
const beat = 80; // milliseconds between updates

// escapes are terminal control sequences, such as colours and titles, and unprintable characters.
// eslint-disable-next-line no-control-regex
const escapes = /\u001b\[[0-?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[\u0000-\u0008\u000b-\u001f\u007f]/g;

export const plain = (text) => text.replace(escapes, '');

export class Tail {
  // shown is called when it shows more, or begins later.
  constructor(label, shown = () => {}) {
    this.shown = shown;
    this.node = el('pre', { class: 'log', tabindex: '0', role: 'log', 'aria-live': 'off', 'aria-label': label });
    this.begin(0);
  }

  // begin empties it: the next text begins at this byte.
  begin(from) {
    clearTimeout(this.timer);
    this.timer = null;
    this.node.replaceChildren();
    this.pieces = []; // {node, to}: to is the byte after the piece
    this.size = 0;
    this.from = from;
    this.fresh = '';
    this.to = from;
    this.cap = least;
  }

  // add appends text; to is the byte after it.
  add(text, to) {
    this.fresh += plain(text);
    this.to = to;
    if (this.fresh.length > this.cap) this.show();
    else this.timer ??= setTimeout(() => this.show(), beat);
  }

  show() {
    clearTimeout(this.timer);
    this.timer = null;
    const atEnd = this.atEnd();
    const node = document.createTextNode(this.fresh);
    this.pieces.push({ node, to: this.to });
    this.size += this.fresh.length;
    this.fresh = '';
    this.node.append(node);
    while (this.size > this.cap && this.pieces.length > 1) {
      const first = this.pieces.shift();
      this.size -= first.node.length;
      this.from = first.to;
      first.node.remove();
    }
    if (atEnd) this.end();
    this.shown();
  }

  atEnd() {
    return this.node.scrollHeight - this.node.scrollTop - this.node.clientHeight < 24;
  }

  end() {
    this.node.scrollTop = this.node.scrollHeight;
  }

  full() {
    return this.size >= most / 2 && this.cap >= most;
  }

  // prepend inserts bytes at the beginning; the first of them is at from.
  prepend(data, from) {
    let begin = 0;
    if (from > 0) begin = data.indexOf(10) + 1; // 0 without a line end: the line is longer than data
    const text = plain(new TextDecoder().decode(data.subarray(begin)).replace(/\r\n?/g, '\n'));
    const node = document.createTextNode(text);
    const below = this.node.scrollHeight - this.node.scrollTop;
    this.cap = Math.min(this.cap + text.length, most);
    this.node.prepend(node);
    this.pieces.unshift({ node, to: this.from });
    this.size += text.length;
    this.from = from + begin;
    this.node.scrollTop = this.node.scrollHeight - below;
  }

  // replace shows another text.
  replace(text) {
    const atEnd = this.atEnd();
    const now = plain(text.replace(/\r\n?/g, '\n'));
    if (this.node.textContent !== now) this.node.textContent = now;
    if (atEnd) this.end();
  }

  stop() {
    clearTimeout(this.timer);
    this.timer = null;
  }
}
