// Makes and changes elements. Text becomes text here and nowhere else: there is no way from a string to markup.

// el makes an element. Of props, class and text are what they say, on are listeners by event, data are data attributes, all others are
// attributes: true is one without a value, and null, undefined and false are none.
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'class') node.className = value;
    else if (name === 'text') node.textContent = value;
    else if (name === 'on') for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (name === 'data') Object.assign(node.dataset, value);
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// button makes a button that does something, once at a time: it takes no further click before that is done.
export function button(text, act, props = {}) {
  let busy = false;
  const node = el('button', { type: 'button', text, ...props });
  node.addEventListener('click', async (event) => {
    event.stopPropagation();
    if (busy) return;
    busy = true;
    node.setAttribute('aria-busy', 'true');
    try {
      await act(event);
    } finally {
      busy = false;
      node.removeAttribute('aria-busy');
    }
  });
  return node;
}

// set changes the text of an element when it is another one.
export function set(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// attribute changes an attribute when it is another one; null takes it away.
export function attribute(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

// fill has parent hold these nodes and no others, and moves none that stands where it should.
export function fill(parent, nodes) {
  const wanted = new Set(nodes);
  for (const child of [...parent.childNodes]) if (!wanted.has(child)) child.remove();
  let at = parent.firstChild;
  for (const node of nodes) {
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
  }
}

// keyed returns a function that shows a list: it keeps an element for each key, made by make(item), which returns {node, update}.
export function keyed(parent, keyOf, make) {
  let shown = new Map();
  return (items) => {
    const next = new Map();
    for (const item of items) {
      const key = keyOf(item);
      if (next.has(key)) continue;
      const row = shown.get(key) ?? make(item);
      row.update(item);
      next.set(key, row);
    }
    shown = next;
    fill(parent, [...next.values()].map((row) => row.node));
  };
}

// keepFocus runs a change, and when the focused element goes with it gives the focus to what takes its place: the act of the same thing that stands
// where it was, the thing itself where that is now, or the nearest heading that is left.
export function keepFocus(change) {
  const before = document.activeElement;
  const thing = before?.closest('[data-key]');
  const section = before?.closest('section');
  const key = thing?.dataset.key;
  const act = before?.dataset.act;
  change();
  if (!before || before === document.body || document.activeElement === before && before.isConnected) return;
  if (before.isConnected) {
    before.focus({ preventScroll: true }); // it was moved
    if (document.activeElement === before) return;
  }
  const moved = [...document.querySelectorAll('[data-key]')].find((other) => other.dataset.key === key);
  const next = thing?.isConnected ? act && thing.querySelector(`[data-act="${CSS.escape(act)}"]`) || thing.querySelector('.acts button') : null;
  const node = next ?? (thing?.isConnected ? thing : moved)?.querySelector('a, button');
  if (node) {
    node.focus({ preventScroll: true });
    return;
  }
  const heading = section?.isConnected && section.querySelector('h2[tabindex]') || document.getElementById('main');
  heading.focus({ preventScroll: true });
}
