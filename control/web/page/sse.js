// Reads server-sent events from the body of a fetch as EventSource does (WHATWG HTML, section 9.2), which cannot send a
// token.

// longest is how many characters of one line are kept; the rest is dropped, so that no line can fill the memory.
const longest = 1 << 17;

// events yields {type, data, id} for each event, where id is the last id sent so far; without data the type is
// ''. It calls alive whenever anything arrives, including comments.
export async function* events(body, alive = () => {}) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  let cut = false; // the line in rest is too long, and its rest is dropped
  let fresh = { type: '', data: null, id: null };
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      alive();
      const lines = decoder.decode(value, { stream: true }).split('\n');
      if (!cut) lines[0] = rest + lines[0];
      else lines[0] = rest;
      rest = lines.pop();
      cut = cut && lines.length === 0 || rest.length > longest;
      if (cut) rest = rest.slice(0, longest);
      for (const line of lines) {
        if (line === '') {
          if (fresh.data !== null || fresh.id !== null) yield { type: fresh.type || (fresh.data === null ? '' : 'message'), data: fresh.data?.join('\n') ?? '', id: fresh.id };
          fresh = { type: '', data: null, id: null };
          continue;
        }
        const colon = line.indexOf(':');
        if (colon === 0) continue;
        const field = colon < 0 ? line : line.slice(0, colon);
        const text = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
        if (field === 'event') fresh.type = text;
        else if (field === 'data') (fresh.data ??= []).push(text);
        else if (field === 'id') fresh.id = text;
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // the connection may be gone
  }
}
