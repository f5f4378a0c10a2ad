package catalog

import (
	"cmp"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/catalog/phrase"
	"github.com/jobdir/jobdir/catalog/yamlfile"
	"github.com/jobdir/jobdir/daemon/outbox"
)

// Source is a definition file that is not on disk, such as an embedded example.
type Source struct {
	Name string // used in messages, as a file name
	YAML []byte
}

// Options are the sources of definitions.
type Options struct {
	// Dirs are the job folders, searched recursively.
	Dirs []string
	// Extra are further files. They have no precedence: a job that is also in a
	// folder is a duplicate.
	Extra []Source
	// Handlers gives the names of the registered Go functions at each reload.
	// nil: handler names are not checked.
	Handlers func() []string
	// Targets is what the targets of deliver share, by which they are checked; nil: all targets are accepted.
	Targets *outbox.Shared
	// ExternalJobs gives jobs that are not read here and that others may be followed by; nil: there are none.
	ExternalJobs func(group, name string) *Definition
	// Logger gets one line for each reload; nil: none.
	Logger *slog.Logger
}

// Catalog is the set of definitions that submissions use. Its methods are safe
// for concurrent use; readers never wait for a reload.
type Catalog struct {
	options Options
	current atomic.Pointer[snapshot]
	reload  sync.Mutex // held by the one reload that is under way
}

// snapshot is one state of the catalog, never changed once it can be seen.
type snapshot struct {
	lastGood   map[string][]*Definition // last good version of each file
	byEndpoint map[string]*Definition
	all        []*Definition
	groups     []string
	problems   Problems
	folders    []string
	replaced   chan struct{} // closed when another one has taken its place
}

// New makes an empty catalog; [Catalog.Reload] fills it.
func New(o Options) *Catalog {
	c := &Catalog{options: o}
	c.current.Store(&snapshot{replaced: make(chan struct{})})
	return c
}

// Reload reads all files again and swaps the set. The error is [Problems], the
// same that [Catalog.Problems] gives: the catalog is in use all the same, with
// the last good version where a file has a problem. A second call waits for the
// first and then reads again.
func (c *Catalog) Reload() error {
	c.reload.Lock()
	defer c.reload.Unlock()
	before := c.current.Load()
	next := &snapshot{
		lastGood: map[string][]*Definition{}, byEndpoint: map[string]*Definition{},
		replaced: make(chan struct{}),
	}
	found := listFolders(c.options.Dirs)
	next.folders, next.problems = found.folders, found.problems

	order := c.readAll(found, before, next)
	for _, path := range slices.Sorted(maps.Keys(before.lastGood)) {
		if _, read := next.lastGood[path]; !read && found.covers(path) {
			next.lastGood[path] = before.lastGood[path]
			order = append(order, path)
		}
	}
	next.resolveEndpoints(order, before, c.options.ExternalJobs)
	next.problems.Sort()
	c.current.Store(next)
	close(before.replaced)
	c.log(before, next)
	return next.problems.Err()
}

// readAll reads the files and the extra sources into next; it gives their names
// in that order.
func (c *Catalog) readAll(found listing, before, next *snapshot) (order []string) {
	keep := func(name string, defs []*Definition, ps Problems) {
		if len(ps) > 0 {
			next.problems = append(next.problems, ps...)
			defs = before.lastGood[name]
		}
		if _, twice := next.lastGood[name]; !twice {
			order = append(order, name)
		}
		next.lastGood[name] = append(next.lastGood[name], defs...)
	}
	for _, path := range found.files {
		if kind := wrongKind(path); kind != "" {
			keep(path, nil, Problems{Position{File: path}.Problem(
				"move it away, or give it a name that does not end in .yaml or .yml", "it is a %s, not a definition file", kind)})
			continue
		}
		data, err := readRegular(path, yamlfile.MaxFile)
		switch {
		case errors.Is(err, fs.ErrNotExist) && isGone(path):
			// Removed since the folder was listed.
		case err != nil:
			keep(path, nil, Problems{Position{File: path}.Problem("", "the file cannot be read: %s", cause(err))})
		default:
			defs, ps := c.parse(path, data)
			keep(path, defs, ps)
		}
	}
	for _, s := range c.options.Extra {
		defs, ps := c.parse(s.Name, s.YAML)
		keep(s.Name, defs, ps)
	}
	return order
}

// parse is [Parse] and the checks of what depends on the program: handler names, and targets.
func (c *Catalog) parse(name string, data []byte) ([]*Definition, Problems) {
	defs, err := Parse(name, data)
	if err != nil {
		ps, _ := errors.AsType[Problems](err)
		return nil, ps
	}
	return defs, append(c.checkHandlers(defs), c.checkTargets(defs)...)
}

func (c *Catalog) checkTargets(defs []*Definition) (ps Problems) {
	if c.options.Targets == nil {
		return nil
	}
	for _, def := range defs {
		for i, d := range def.Deliver {
			if err := d.Target(c.options.Targets).Check(); err != nil {
				ps = append(ps, d.at.Problem("", "nothing can be delivered to target %d (%s): %v", i+1, d.Kind.Name, err))
			}
		}
	}
	return ps
}

func (c *Catalog) checkHandlers(defs []*Definition) (ps Problems) {
	if c.options.Handlers == nil {
		return nil
	}
	known := slices.Sorted(slices.Values(c.options.Handlers()))
	for _, d := range withHandlers(defs) {
		if slices.Contains(known, d.Handler) {
			continue
		}
		hint := "no handlers are registered"
		if len(known) > 0 {
			hint = strings.TrimSpace(phrase.DidYouMean(d.Handler, known) + " registered: " + strings.Join(known, ", "))
		}
		ps = append(ps, d.handlerAt.Problem(hint, "unknown handler %q", d.Handler))
	}
	return ps
}

// withHandlers gives the definitions whose work handlers do, also in steps.
func withHandlers(defs []*Definition) (all []*Definition) {
	for _, d := range defs {
		if d.Handler != "" {
			all = append(all, d)
		}
		for _, s := range d.Steps {
			if s.Work != nil && s.Work.Handler != "" {
				all = append(all, s.Work)
			}
		}
	}
	return all
}

// resolveEndpoints gives every endpoint name its definition. A name that several definitions claim, or whose next job
// is not possible, keeps the definition that it had before.
func (s *snapshot) resolveEndpoints(order []string, before *snapshot, elsewhere func(group, name string) *Definition) {
	claims := map[string][]*Definition{}
	for _, name := range order {
		for _, d := range s.lastGood[name] {
			claims[d.Endpoint()] = append(claims[d.Endpoint()], d)
		}
	}
	unfit := s.checkFollowers(claims, elsewhere)
	for endpoint, defs := range claims {
		if len(defs) == 1 && !unfit[defs[0]] {
			s.byEndpoint[endpoint] = defs[0]
			continue
		}
		if d := before.byEndpoint[endpoint]; d != nil {
			s.byEndpoint[endpoint] = d
		}
		if len(defs) == 1 {
			continue
		}
		for i, d := range defs {
			other := defs[0]
			if i == 0 {
				other = defs[1]
			}
			s.problems = append(s.problems, d.at.Problem("rename one of them; neither is used",
				"the endpoint name %q of %s is also that of %s in %s", endpoint, d.Address(), other.Address(), other.at))
		}
	}
	s.all = slices.SortedFunc(maps.Values(s.byEndpoint), func(a, b *Definition) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Name, b.Name))
	})
	for _, d := range s.all {
		s.groups = append(s.groups, d.Group)
	}
	s.groups = slices.Compact(s.groups)
}

// checkFollowers reports jobs whose next job does not exist or does not accept the parameters that they pass.
// It runs after all files are read, because the two may be in different files. It returns the jobs that must
// not be used: none while there are other problems, because the missing job may be in a file with a problem.
func (s *snapshot) checkFollowers(claims map[string][]*Definition,
	elsewhere func(group, name string) *Definition,
) map[*Definition]bool {
	unfit, complete := map[*Definition]bool{}, len(s.problems) == 0
	broken := map[string]bool{} // files whose last good version counts: their places are others by now
	for _, p := range s.problems {
		broken[p.File] = true
	}
	find := func(t *Then) *Definition {
		for _, d := range claims[t.Group+"-"+t.Name] {
			if d.Group == t.Group {
				return d
			}
		}
		if elsewhere != nil {
			return elsewhere(t.Group, t.Name)
		}
		return nil
	}
	for _, defs := range claims {
		for _, d := range defs {
			if d.Then == nil || broken[d.at.File] {
				continue
			}
			next := find(d.Then)
			var found Problems
			if next == nil {
				hint := phrase.DidYouMean(d.Then.Address(), addresses(claims))
				found = Problems{d.Then.at.Problem(hint, "then: there is no job %q", d.Then.Address())}
			} else {
				found = d.followerProblems(next)
			}
			s.problems = append(s.problems, found...)
			unfit[d] = len(found) > 0 && complete
		}
	}
	return unfit
}

func addresses(claims map[string][]*Definition) (all []string) {
	for _, endpoint := range slices.Sorted(maps.Keys(claims)) {
		for _, d := range claims[endpoint] {
			all = append(all, d.Address())
		}
	}
	return all
}

// followerProblems returns parameters that the next job does not accept, or lacks, whatever the result is.
func (d *Definition) followerProblems(next *Definition) (found Problems) {
	t := d.Then
	given := map[string]bool{}
	for _, p := range t.Params {
		given[p.Name] = true
		taken := next.Param(p.Name)
		if taken == nil {
			found = append(found, p.at.Problem(next.paramHint(p.Name), "then: the job %s has no parameter %q",
				t.Address(), phrase.Clip(p.Name)))
			continue
		}
		if thenReference.Match(p.Value) {
			continue // its value is not known yet
		}
		v, reason := param.ParseJSON(taken.Type, p.Value)
		if reason == "" {
			_, reason = taken.Accept(v)
		}
		if reason != "" {
			found = append(found, p.at.Problem("", "then: the parameter %q of %s: %s", p.Name, t.Address(), reason))
		}
	}
	for i := range next.Params {
		if p := &next.Params[i]; p.Required && p.Default.IsZero() && !given[p.Name] {
			found = append(found, t.at.Problem("set it in then: {params: {...}}",
				"then: the job %s needs the parameter %q", t.Address(), p.Name))
		}
	}
	return found
}

func (c *Catalog) log(before, after *snapshot) {
	if c.options.Logger == nil {
		return
	}
	added, changed, removed := 0, 0, 0
	for endpoint, d := range after.byEndpoint {
		switch old := before.byEndpoint[endpoint]; {
		case old == nil:
			added++
		case string(old.source) != string(d.source):
			changed++
		default:
			continue
		}
		for _, w := range d.warnings {
			c.options.Logger.Warn("job definition is dangerous", "job", d.Address(), "warning", w)
		}
	}
	for endpoint := range before.byEndpoint {
		if after.byEndpoint[endpoint] == nil {
			removed++
		}
	}
	say := c.options.Logger.Debug // a folder without events is read every second
	if added+changed+removed > 0 || len(before.problems) != len(after.problems) {
		say = c.options.Logger.Info
	}
	say("job definitions read", "jobs", len(after.all), "added", added, "changed", changed, "removed", removed, "problems",
		len(after.problems))
}

// Get gives the job of that address, nil when there is none.
func (c *Catalog) Get(group, name string) *Definition {
	// The endpoint name alone would also find a-b/c for a/b-c.
	if d := c.ByEndpoint(group + "-" + name); d != nil && d.Group == group {
		return d
	}
	return nil
}

// ByEndpoint gives the job of that endpoint name, nil when there is none.
func (c *Catalog) ByEndpoint(endpoint string) *Definition {
	return c.current.Load().byEndpoint[endpoint]
}

// All gives every job, sorted by group and name.
func (c *Catalog) All() []*Definition { return slices.Clone(c.current.Load().all) }

// Changed returns a channel that is closed at the next reload. A caller that gets it before it reads the jobs
// misses no change.
func (c *Catalog) Changed() <-chan struct{} { return c.current.Load().replaced }

// Groups gives the groups that have jobs, sorted.
func (c *Catalog) Groups() []string { return slices.Clone(c.current.Load().groups) }

// Problems gives what the last reload found wrong, sorted by file and place.
func (c *Catalog) Problems() []Problem {
	ps := c.current.Load().problems
	out := make([]Problem, len(ps))
	for i, p := range ps {
		out[i] = *p
	}
	return out
}

// Folders gives every folder that the last reload listed, those inside job
// folders included: the ones to watch for changes.
func (c *Catalog) Folders() []string { return slices.Clone(c.current.Load().folders) }
