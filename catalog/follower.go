package catalog

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/catalog/phrase"
)

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
				found = Problems{d.thenAt.job.Problem(hint, "then: there is no job %q", d.Then.Address())}
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
	for i, p := range t.Params {
		given[p.Name] = true
		taken := next.Param(p.Name)
		if taken == nil {
			found = append(found, d.thenAt.params[i].Problem(next.paramHint(p.Name), "then: the job %s has no parameter %q",
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
			found = append(found, d.thenAt.params[i].Problem("", "then: the parameter %q of %s: %s", p.Name, t.Address(), reason))
		}
	}
	for i := range next.Params {
		if p := &next.Params[i]; p.Required && p.Default.IsZero() && !given[p.Name] {
			found = append(found, d.thenAt.job.Problem("set it in then: {params: {...}}",
				"then: the job %s needs the parameter %q", t.Address(), p.Name))
		}
	}
	return found
}

// paramHint says which parameter of a job an unknown name may mean, or which there are.
func (d *Definition) paramHint(name string) string {
	if len(d.Params) == 0 {
		return "the job has no parameters"
	}
	names := d.paramNames()
	return cmp.Or(phrase.DidYouMean(name, names), "known here: "+strings.Join(names, ", "))
}
