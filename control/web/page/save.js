// Lets the browser save fetched data. A link cannot carry the token, so the page fetches.
import { el } from './dom.js';

// most is how many bytes may pass through the memory of the page.
const most = 256 << 20;

export async function save(answer, name) {
  const size = Number(answer.headers.get('Content-Length'));
  if (size > most) {
    await answer.body.cancel();
    throw new Error(`${name} is larger than what a page can keep: fetch it with curl, or with jobdir logs`);
  }
  const url = URL.createObjectURL(await answer.blob());
  el('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}
