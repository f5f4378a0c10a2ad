// The view of jobs, with a form to start each.
import { get, post } from './api.js';
import { el, keepFocus, keyed, set } from './dom.js';
import { doing, say } from './message.js';
import { Refresh } from './refresh.js';
import { go, hashOf, withOpen } from './route.js';
import { token } from './token.js';

export class Jobs {
  constructor() {
    this.wrong = el('p', { class: 'wrong', hidden: true });
    this.none = el('p', { class: 'none', text: 'No job is defined. Put a YAML file into one of the job folders.', hidden: true });
    this.problems = el('ul', { class: 'problems' });
    this.list = el('ul', { class: 'jobs', 'aria-label': 'Jobs' });
    this.node = el('section', {}, el('h2', { tabindex: '-1', text: 'Jobs' }), this.wrong, this.problems, this.list, this.none);
    this.show_ = keyed(this.list, (job) => job.path, newJob);
    this.refresh = new Refresh((signal) => this.read(signal), (err) => {
      this.wrong.hidden = err === null;
      set(this.wrong, err?.message ?? '');
    });
  }

  async read(signal) {
    const { jobs, problems } = await get('/api/v1/jobs', {}, signal);
    keepFocus(() => {
      this.show_(jobs);
      this.none.hidden = jobs.length > 0;
      this.problems.replaceChildren(...(problems ?? []).map((problem) => el('li', { class: 'wrong', text: problemText(problem) })));
    });
  }

  show() {}

  opened() {
    this.refresh.mark(0);
  }

  event() {}

  stop() {
    this.refresh.stop();
  }
}

const problemText = (problem) => (typeof problem === 'string' ? problem : [[problem.file, problem.line, problem.column].filter(Boolean).join(':'), problem.message ?? problem.text, problem.hint].filter(Boolean).join(': '));

function newJob(first) {
  const address = `${first.group}/${first.name}`;
  const summary = el('span', { class: 'dim' });
  const fields = el('div');
  let shape = '';
  let inputs = [];
  const form = el('form', { on: { submit: async (event) => {
    event.preventDefault();
    if (form.getAttribute('aria-busy')) return;
    form.setAttribute('aria-busy', 'true');
    const made = await doing(() => post(`/${address}`, { body: Object.assign({}, ...inputs.map((input) => input.value())) }));
    form.removeAttribute('aria-busy');
    if (made?.id) {
      say(`Submitted as ${made.id}`);
      go({ view: 'operations', open: withOpen(made.id) });
    }
  } } }, fields, el('p', { class: 'choices' }, 
    token.value === '' && el('a', { href: `../${address}`, text: 'How to call it' }), // a link cannot carry a token
    el('a', { href: hashOf({ view: 'operations', job: address }), text: 'Its operations' }), el('button', { type: 'submit', class: 'main', text: 'Start' })));
  const node = el('li', { data: { key: first.path } }, el('details', {}, el('summary', {}, el('span', { class: 'name', text: address }), ' ', summary), form));
  return { node, update: (job) => {
    set(summary, job.summary ?? '');
    if (JSON.stringify(job.params) === shape) return; // keep what was typed
    shape = JSON.stringify(job.params);
    inputs = job.params.map((param) => newInput(address, param));
    fields.replaceChildren(...inputs.map((input) => input.node));
    if (inputs.length === 0) fields.replaceChildren(el('p', { class: 'dim', text: 'It has no parameters.' }));
  } };
}

// newInput makes the input of one parameter. value() returns nothing when the default applies.
function newInput(address, param) {
  const id = `p-${address}-${param.name}`.replace(/[^\w-]/g, '-');
  const fallback = param.default === undefined || param.default === null ? '' : typeof param.default === 'string' ? param.default : JSON.stringify(param.default);
  const options = param.enum ?? (param.type === 'boolean' ? [true, false] : null);
  const node = options
    ? el('select', { id, required: param.required }, [param.required ? null : el('option', { value: '', text: fallback ? `default: ${fallback}` : 'not given' })], options.map((value) => el('option', { value: JSON.stringify(value), text: String(value) })))
    : el('input', { id, type: 'text', required: param.required, placeholder: fallback, autocomplete: 'off', inputmode: param.type === 'integer' ? 'numeric' : param.type === 'number' ? 'decimal' : null, 'aria-describedby': param.summary && `${id}-hint` });
  const value = () => {
    if (node.value === '' && !param.required) return {};
    if (options || param.type !== 'string') {
      try {
        return { [param.name]: JSON.parse(node.value) };
      } catch { /* the daemon will refuse it with a reason */ }
    }
    return { [param.name]: node.value };
  };
  return { value, node: el('div', { class: 'field' }, el('label', { for: id, text: `${param.name} (${param.type}${param.required ? '' : ', optional'})` }), node,
    param.summary && el('p', { class: 'hint', id: `${id}-hint`, text: param.summary })) };
}
