// Creates and changes elements. All text becomes text nodes: nothing converts a string to markup.

// el makes an element. Of props, class and text are the class and the text, on are listeners by event, data are data
// attributes, and all others are attributes: true has no value, and null, undefined and false are omitted.
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

// button makes a button. It ignores further clicks until its act is done.
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

// set changes the text of an element if it differs.
export function set(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// attribute changes an attribute if it differs; null removes it.
export function attribute(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

// fill makes nodes the only children of parent, and does not move nodes that are in place.
export function fill(parent, nodes) {
  const wanted = new Set(nodes);
  for (const child of [...parent.childNodes]) if (!wanted.has(child)) child.remove();
  let at = parent.firstChild;
  for (const node of nodes) {
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
  }
}

// keyed returns a function that shows a list. It keeps one element per key, made by make(item), which returns
// {node, update}.
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

// keepFocus runs a change. If the change removes the focused element, it focuses a replacement: the same act of the
// same thing, the thing itself at its new place, or the nearest heading that is left.
export function keepFocus(change) {
  const before = document.activeElement;
  const thing = before?.closest('[data-key]');
  const section = before?.closest('section');
  const key = thing?.dataset.key;
  const act = before?.dataset.act;
  change();
  if (!before || before === document.body || document.activeElement === before && before.isConnected) return;
  if (before.isConnected) {
    before.focus({ preventScroll: true }); // a moved element loses the focus
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
