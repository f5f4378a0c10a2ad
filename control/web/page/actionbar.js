// Shows buttons for the possible acts on one thing, and reuses the buttons of acts that stay.
import { button, keyed, set } from './dom.js';

// actbar returns {node, update(thing, acts)}. It calls done(answer) after each successful act.
export function actbar(node, done) {
  let thing = null;
  const show = keyed(node, (act) => act.name, (first) => {
    let act = first;
    const made = button(act.text, async () => {
      const answer = await act.run(thing);
      if (answer) done(answer, thing);
    }, { data: { act: act.name }, 'aria-label': act.label ?? null, class: act.danger ? 'danger' : act.main ? 'main' : null });
    return { node: made, update: (now) => {
      act = now;
      set(made, now.text);
      if (now.label) made.setAttribute('aria-label', now.label);
    } };
  });
  return { node, update: (now, acts) => {
    thing = now;
    show(acts);
  } };
}
