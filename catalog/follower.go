package catalog

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// checkFollowers reports jobs that are followed by one that there is not, or by one that does not take what they give it. It looks when all files
// are read, since the two may stand in any of them, and returns the jobs that are not to be used: none while there are other problems, since one
// of those may be that of the file with the job that is missing.
func (s *snapshot) checkFollowers(claims map[string][]*Definition, elsewhere func(group, name string) *Definition) map[*Definition]bool {
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
				found = Problems{misfit(d.thenAt.job, didYouMean(d.Then.Address(), addresses(claims)), "then: there is no job %q", d.Then.Address())}
			} else {
				found = d.misfits(next)
			}
			s.problems = append(s.problems, found...)
			unfit[d] = len(found) > 0 && complete
		}
	}
	return unfit
}

func misfit(at Position, hint, format string, args ...any) *Problem {
	return &Problem{File: at.File, Line: at.Line, Column: at.Column, Message: fmt.Sprintf(format, args...), Hint: hint}
}

func addresses(claims map[string][]*Definition) (all []string) {
	for _, endpoint := range slices.Sorted(maps.Keys(claims)) {
		for _, d := range claims[endpoint] {
			all = append(all, d.Address())
		}
	}
	return all
}

// misfits says what the next job does not take, or lacks, whatever the result is.
func (d *Definition) misfits(next *Definition) (found Problems) {
	t := d.Then
	given := map[string]bool{}
	for i, p := range t.Params {
		given[p.Name] = true
		param := next.Param(p.Name)
		if param == nil {
			hint := didYouMean(p.Name, next.paramNames())
			if hint == "" {
				hint = next.knownParams()
			}
			found = append(found, misfit(d.thenAt.params[i], hint, "then: the job %s has no parameter %q", t.Address(), clip(p.Name)))
			continue
		}
		if thenReference.Match(p.Value) {
			continue // nobody knows yet what it will be
		}
		v, reason := parseJSON(param.Type, p.Value)
		if reason == "" {
			v, reason = param.normalized(v)
		}
		if reason == "" && !v.IsZero() {
			reason = param.check(v)
		}
		if reason != "" {
			found = append(found, misfit(d.thenAt.params[i], "", "then: the parameter %q of %s: %s", p.Name, t.Address(), reason))
		}
	}
	for i := range next.Params {
		if p := &next.Params[i]; p.Required && p.Default.IsZero() && !given[p.Name] {
			found = append(found, misfit(d.thenAt.job, "give it in then: {params: {...}}", "then: the job %s needs the parameter %q", t.Address(), p.Name))
		}
	}
	return found
}

// knownParams names the parameters of a job.
func (d *Definition) knownParams() string {
	if len(d.Params) == 0 {
		return "the job has no parameters"
	}
	return "known here: " + strings.Join(d.paramNames(), ", ")
}
