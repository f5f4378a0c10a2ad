// The fragment of the address holds what is shown: #/operations?status=running&open=ID. So it can be bookmarked, sent
// and navigated back from.

export const mostOpen = 3; // logs followed at once: browsers allow six connections to one host

export const views = ['operations', 'lanes', 'outbox', 'jobs'];

export function current() {
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split('?');
  const params = new URLSearchParams(query);
  return {
    view: views.includes(path) ? path : 'operations',
    job: params.get('job') ?? '', status: params.get('status') ?? '', q: params.get('q') ?? '',
    open: (params.get('open') ?? '').split(',').filter(Boolean).slice(0, mostOpen),
  };
}

export function hashOf({ view, job, status, q, open }) {
  const params = new URLSearchParams();
  if (job) params.set('job', job);
  if (status) params.set('status', status);
  if (q) params.set('q', q);
  if (open?.length) params.set('open', open.join(','));
  const query = params.toString().replaceAll('%2C', ',').replaceAll('%2F', '/');
  return `#/${view}${query && `?${query}`}`;
}

// go changes a part of what is shown. It adds a history entry unless replace is set.
export function go(change, replace = false) {
  const hash = hashOf({ ...current(), ...change });
  if (hash === location.hash) return;
  if (!replace) {
    location.hash = hash;
    return;
  }
  history.replaceState(null, '', hash);
  dispatchEvent(new HashChangeEvent('hashchange'));
}

// withOpen returns the open operations after opening another: the newest first, without the oldest if there are too
// many.
export const withOpen = (id) => [id, ...current().open.filter((other) => other !== id)].slice(0, mostOpen);

// operationHash is the fragment with an operation open.
export const operationHash = (id) => hashOf({ ...current(), view: 'operations', open: withOpen(id) });

export const without = (id) => current().open.filter((other) => other !== id);
