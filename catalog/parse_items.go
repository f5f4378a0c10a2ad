package catalog

import (
	"strings"

	"github.com/jobdir/jobdir/catalog/condition"
	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/catalog/phrase"
	"github.com/jobdir/jobdir/catalog/yamlfile"
)

func readGlob(j *jobDecoder, n *yamlfile.Node, key string) {
	glob := j.path(n, key)
	j.def.Items.Glob = glob
	if glob != "" && !refers(glob) {
		if _, err := parseGlob(glob); err != nil {
			j.Fail(n, "", "%s", err)
		}
	}
}

func readItemList(j *jobDecoder, n *yamlfile.Node, key string) { j.def.Items.ListFile = j.path(n, key) }

func checkItems(j *jobDecoder, n *yamlfile.Node) {
	if len(n.Entries) != 1 {
		j.Fail(n, "", "items must have exactly one of glob, list and range")
	}
}

func readRange(j *jobDecoder, n *yamlfile.Node, _ string) {
	if n.Kind != yamlfile.List || len(n.Elements) != 2 {
		j.Fail(n, "write [FIRST, LAST], both included", "range must be a list of two numbers")
		return
	}
	r := &Range{First: j.bound(n.Elements[0]), Last: j.bound(n.Elements[1])}
	if r.First.known() && r.Last.known() && r.First.Number > r.Last.Number {
		j.Fail(n, "", "the range ends before it begins")
	}
	j.def.Items.Range = r
}

// bound reads a number or the reference to an integer parameter, which is
// checked when the parameters are known.
func (j *jobDecoder) bound(n *yamlfile.Node) Bound {
	if n.Kind != yamlfile.Text {
		v, _ := j.Integer(n, "range")
		return Bound{Number: v}
	}
	ref := referenceAt(n.Text)
	if len(ref)+len("${}") == len(n.Text) {
		j.uses = append(j.uses, use{at: n, text: n.Text, filled: true})
		if name, ok := strings.CutPrefix(ref, "params."); ok {
			return Bound{Param: name}
		}
		if strings.HasPrefix(ref, condition.StepsPrefix) {
			return Bound{Output: ref}
		}
	}
	j.Fail(n, `write a number or "${params.NAME}"`, "range cannot have %q", phrase.Clip(n.Text))
	return Bound{}
}

// checkAddress checks group and name together.
func (j *jobDecoder) checkAddress() {
	for _, key := range []string{"group", "name"} {
		if j.at[key] == nil {
			j.Fail(j.root, "every job has a group and a name", "the key %q is missing", key)
		}
	}
	if len(j.Problems) == 0 && !shortName.MatchString(j.def.Endpoint()) {
		j.Fail(j.root, "group and name together have at most 62 characters",
			"the endpoint name %q is longer than 63 characters", j.def.Endpoint())
	}
}

// checkNeeded refuses a key that has a meaning only with another one.
func (j *jobDecoder) checkNeeded(key, other, hint string) {
	if k := j.at[key]; k != nil && j.at[other] == nil {
		j.Fail(k, hint, "%s has a meaning only with %s", key, other)
	}
}

// checkWork checks that there is exactly one kind of work, with its own keys only.
func (j *jobDecoder) checkWork() {
	const kinds = "a job has run, or items and run, or handler, or steps"
	steps := j.at["steps"]
	if steps == nil {
		j.checkKind("job", kinds)
		if j.at["run"] == nil && j.at["handler"] == nil && j.at["items"] == nil && len(j.Problems) == 0 {
			// else it may be there, misspelt
			j.Fail(j.root, kinds, "the job has no work")
		}
		return
	}
	for _, key := range []string{"run", "items", "handler"} {
		if k := j.at[key]; k != nil {
			j.Fail(k, kinds, "the job has both steps and %s", key)
		}
	}
	if k := j.at["parallel"]; k != nil {
		j.Fail(k, "give it to a step that has items", "parallel has a meaning only with items")
	}
}

// checkKind checks that the keys of a job or a step belong to one kind of work.
func (j *jobDecoder) checkKind(owner, kinds string) {
	run, items, handler := j.at["run"], j.at["items"], j.at["handler"]
	switch {
	case handler != nil && run != nil:
		j.Fail(handler, kinds, "the %s has both handler and run", owner)
	case handler != nil && items != nil:
		j.Fail(handler, kinds, "the %s has both handler and items", owner)
	case items != nil && run == nil:
		j.Fail(items, "add the command that is run for each item", "the %s has items but no run", owner)
	}
	j.checkNeeded("parallel", "items", "")
	if handler == nil {
		return
	}
	for _, key := range jobKeys {
		if k := j.at[key.name]; k != nil && key.in&ofCommand != 0 {
			j.Fail(k, "a handler is a function of the daemon's own process", "%s has a meaning only with run", key.name)
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
			j.Fail(at, "each step continues as its kind of work does; for all of them it can be retry or fail",
				"the restart of a job with steps cannot be %q", j.def.restart)
		}
	case j.def.restart == RestartAdopt && j.def.Work() != WorkRun:
		j.Fail(at, "items and handlers resume: they continue at the first unfinished item", "only a command can be adopted")
	case j.def.restart == RestartResume && j.def.Work() == WorkRun:
		j.Fail(at, "use adopt, retry or fail", "a command has no items to resume at")
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
				j.Fail(u.at, "", "more than %d references in one text", maxReferences)
				break
			}
			j.checkReference(u, p.ref)
		}
	}
	if it := j.def.Items; it != nil && it.Range != nil {
		for _, b := range []Bound{it.Range.First, it.Range.Last} {
			if p := j.def.Param(b.Param); p != nil && p.Type != param.IntegerType {
				j.Fail(j.at["items"], "a range counts integers", "range uses the parameter %q, which is %s",
					p.Name, param.Article(p.Type))
			}
		}
	}
}

func (j *jobDecoder) checkReference(u use, ref string) {
	name, isParam := strings.CutPrefix(ref, "params.")
	switch {
	case strings.HasPrefix(ref, condition.StepsPrefix):
		j.checkOutput(u.at, ref)
	case ref == "item" && !u.item:
		j.Fail(u.at, "it is known only to run and env", "${item} cannot be used here")
	case ref == "id" && u.early:
		j.Fail(u.at, "no two operations have the same ID", "${id} cannot be used here")
	case ref == "item" && j.def.Items == nil:
		j.Fail(u.at, "add items, or write it otherwise", "${item} without items")
	case !isParam:
	case j.def.Param(name) == nil:
		j.unknownParam(u.at, name)
	case u.filled:
		if p := j.def.Param(name); !p.Required && p.Default.IsZero() {
			j.Fail(u.at, "make it required or give it a default", "the parameter %q can be without a value here", name)
		}
	}
}

func (j *jobDecoder) unknownParam(at *yamlfile.Node, name string) {
	wrong, hint := condition.Scope{Params: j.def.Params}.Param(name)
	j.Fail(at, hint, "%s", wrong)
}
