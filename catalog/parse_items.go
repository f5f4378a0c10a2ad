package catalog

import (
	"slices"
	"strings"
)

func readGlob(j *jobDecoder, n *node, key string) {
	glob := j.path(n, key)
	j.def.Items.Glob = glob
	if glob != "" && !hasReference(glob) {
		if _, err := parseGlob(glob); err != nil {
			j.fail(n, "", "%s", err)
		}
	}
}

func readItemList(j *jobDecoder, n *node, key string) { j.def.Items.ListFile = j.path(n, key) }

func checkItems(j *jobDecoder, n *node) {
	if len(n.entries) != 1 {
		j.fail(n, "", "items must have exactly one of glob, list and range")
	}
}

func hasReference(s string) bool {
	for p := range pieces(s) {
		if p.ref != "" {
			return true
		}
	}
	return false
}

func readRange(j *jobDecoder, n *node, _ string) {
	if n.kind != listKind || len(n.elements) != 2 {
		j.fail(n, "write [FIRST, LAST], both included", "range must be a list of two numbers")
		return
	}
	r := &Range{First: j.bound(n.elements[0]), Last: j.bound(n.elements[1])}
	if r.First.known() && r.Last.known() && r.First.Number > r.Last.Number {
		j.fail(n, "", "the range ends before it begins")
	}
	j.def.Items.Range = r
}

// bound reads a number or the reference to an integer parameter, which is
// checked when the parameters are known.
func (j *jobDecoder) bound(n *node) Bound {
	if n.kind != textKind {
		v, _ := j.integer(n, "range")
		return Bound{Number: v}
	}
	ref := referenceAt(n.text)
	if len(ref)+len("${}") == len(n.text) {
		j.uses = append(j.uses, use{at: n, text: n.text, filled: true})
		if name, ok := strings.CutPrefix(ref, "params."); ok {
			return Bound{Param: name}
		}
		if strings.HasPrefix(ref, stepsPrefix) {
			return Bound{Output: ref}
		}
	}
	j.fail(n, `write a number or "${params.NAME}"`, "range cannot have %q", clip(n.text))
	return Bound{}
}

// checkAddress checks group and name together.
func (j *jobDecoder) checkAddress() {
	for _, key := range []string{"group", "name"} {
		if j.at[key] == nil {
			j.fail(j.root, "every job has a group and a name", "the key %q is missing", key)
		}
	}
	if len(j.problems) == 0 && !endpointName.MatchString(j.def.Endpoint()) {
		j.fail(j.root, "group and name together have at most 62 characters",
			"the endpoint name %q is longer than 63 characters", j.def.Endpoint())
	}
}

// checkWork checks that there is exactly one kind of work, with its own keys only.
func (j *jobDecoder) checkWork() {
	const kinds = "a job has run, or items and run, or handler, or steps"
	steps := j.at["steps"]
	if steps == nil {
		j.checkKind("job", kinds)
		if j.at["run"] == nil && j.at["handler"] == nil && j.at["items"] == nil && len(j.problems) == 0 {
			// else it may be there, misspelt
			j.fail(j.root, kinds, "the job has no work")
		}
		return
	}
	for _, key := range []string{"run", "items", "handler"} {
		if k := j.at[key]; k != nil {
			j.fail(k, kinds, "the job has both steps and %s", key)
		}
	}
	if k := j.at["parallel"]; k != nil {
		j.fail(k, "give it to a step that has items", "parallel has a meaning only with items")
	}
}

// checkKind checks that the keys of a job or a step belong to one kind of work.
func (j *jobDecoder) checkKind(owner, kinds string) {
	run, items, handler := j.at["run"], j.at["items"], j.at["handler"]
	switch {
	case handler != nil && run != nil:
		j.fail(handler, kinds, "the %s has both handler and run", owner)
	case handler != nil && items != nil:
		j.fail(handler, kinds, "the %s has both handler and items", owner)
	case items != nil && run == nil:
		j.fail(items, "add the command that is run for each item", "the %s has items but no run", owner)
	}
	if p := j.at["parallel"]; p != nil && items == nil {
		j.fail(p, "", "parallel has a meaning only with items")
	}
	if handler == nil {
		return
	}
	for _, key := range []string{"dir", "env"} {
		if k := j.at[key]; k != nil {
			j.fail(k, "a handler is a function of the daemon's own process", "%s has a meaning only with run", key)
		}
	}
}

// checkRestart checks that work of this kind can go on in that way.
func (j *jobDecoder) checkRestart() {
	at := j.at["restart"]
	switch {
	case at == nil:
	case j.at["steps"] != nil:
		if j.def.restart == RestartAdopt || j.def.restart == RestartResume {
			j.fail(at, "each step continues as its kind of work does; for all of them it can be retry or fail",
				"the restart of a job with steps cannot be %q", j.def.restart)
		}
	case j.def.restart == RestartAdopt && j.def.Work() != WorkRun:
		j.fail(at, "items and handlers resume: they continue at the first unfinished item", "only a command can be adopted")
	case j.def.restart == RestartResume && j.def.Work() == WorkRun:
		j.fail(at, "use adopt, retry or fail", "a command has no items to resume at")
	}
}

// checkReferences checks every text that may hold references.
func (j *jobDecoder) checkReferences() {
	for _, u := range j.uses {
		count := 0
		for p := range pieces(u.text) {
			if p.ref == "" {
				continue
			}
			if count++; count > maxReferences {
				j.fail(u.at, "", "more than %d references in one text", maxReferences)
				break
			}
			j.checkReference(u, p.ref)
		}
	}
	if it := j.def.Items; it != nil && it.Range != nil {
		for _, b := range []Bound{it.Range.First, it.Range.Last} {
			if p := j.def.Param(b.Param); p != nil && p.Type != IntegerType {
				j.fail(j.at["items"], "a range counts integers", "range uses the parameter %q, which is %s",
					p.Name, article(p.Type))
			}
		}
	}
}

func (j *jobDecoder) checkReference(u use, ref string) {
	name, isParam := strings.CutPrefix(ref, "params.")
	switch {
	case strings.HasPrefix(ref, stepsPrefix):
		j.checkOutput(u.at, ref)
	case ref == "item" && !u.item:
		j.fail(u.at, "it is known only to run and env", "${item} cannot be used here")
	case ref == "id" && u.early:
		j.fail(u.at, "no two operations have the same ID", "${id} cannot be used here")
	case ref == "item" && j.def.Items == nil:
		j.fail(u.at, "add items, or write it otherwise", "${item} without items")
	case !isParam:
	case j.def.Param(name) == nil:
		j.unknownParam(u.at, name)
	case u.filled:
		if p := j.def.Param(name); !p.Required && p.Default.IsZero() {
			j.fail(u.at, "make it required or give it a default", "the parameter %q can be without a value here", name)
		}
	}
}

func (j *jobDecoder) unknownParam(at *node, name string) {
	j.fail(at, j.def.knownParam(name), "unknown parameter %q", clip(name))
}

// knownParam is the hint for a name that no parameter has.
func (d *Definition) knownParam(name string) string {
	names := d.paramNames()
	if hint := didYouMean(name, names); hint != "" {
		return hint
	}
	if len(names) == 0 {
		return "the job has no params"
	}
	return "known: " + strings.Join(slices.Compact(names), ", ")
}
