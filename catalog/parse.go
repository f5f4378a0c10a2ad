package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jobdir/jobdir/catalog/condition"
	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/catalog/yamlfile"
	"github.com/jobdir/jobdir/statefs"
)

// Parse reads the jobs of one file, one for each YAML document. file is used in
// messages alone. The error is [Problems], each with its place; the definitions
// are all of the file or none. Documents with nothing but comments are skipped.
func Parse(file string, data []byte) ([]*Definition, error) {
	documents, problem := yamlfile.Split(file, data)
	if problem != nil {
		return nil, Problems{problem}
	}
	var definitions []*Definition
	var problems Problems
	for _, doc := range documents {
		if doc.Blank() {
			continue
		}
		def, ps := parseDocument(file, doc)
		problems = append(problems, ps...)
		definitions = append(definitions, def)
		if len(problems) >= yamlfile.MaxProblems {
			break
		}
	}
	if len(problems) > 0 {
		problems.Sort()
		return nil, problems
	}
	return definitions, nil
}

// Stored returns the definition that the storage keeps under a hash: that under which an operation was submitted.
func Stored(tree *statefs.Tree, hash string) (*Definition, error) {
	source, err := tree.Definition(hash)
	if err != nil {
		return nil, fmt.Errorf("read the definition it was submitted under: %w", err)
	}
	list, err := Parse("definitions/"+hash+".yaml", source)
	if err != nil || len(list) != 1 {
		return nil, fmt.Errorf("the definition it was submitted under cannot be read: %w", errors.Join(err, fs.ErrInvalid))
	}
	return list[0], nil
}

func parseDocument(file string, doc yamlfile.Document) (*Definition, Problems) {
	root, problem := yamlfile.Parse(file, doc)
	if problem != nil {
		return nil, Problems{problem}
	}
	def := &Definition{source: doc.Text, at: Position{File: file, Line: root.Line, Column: root.Column}}
	jobKeys.clear(def)
	j := newDecoder(&yamlfile.Decoder{File: file}, root, def)
	j.job()
	return def, j.Problems
}

func (j *jobDecoder) job() {
	if !j.decode(j.root, jobKeys.set("a job", inJob, "it is a key of a step"), jobKeys, inJob, "") {
		return
	}
	j.readSteps()
	j.checkAddress()
	j.checkWork()
	j.checkRestart()
	j.checkNeeded("on_stall", "stall_after", "add stall_after")
	j.checkQueue()
	j.checkSteps()
	j.checkReferences()
	j.checkSchedule()
	if len(j.Problems) == 0 {
		j.warnOfScripts()
		j.noteIneffective(settings{Definition: j.def, at: j.at})
		for _, s := range j.steps {
			if s.step.Work != nil {
				j.noteIneffective(settings{Definition: s.step.Work, job: j.def, step: s.step, at: s.at})
			}
		}
	}
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

// checkQueue checks what depends on more than one key.
func (j *jobDecoder) checkQueue() {
	j.checkNeeded("key_order", "key", "add key")
	by := j.values["unique.by"]
	if by == nil {
		return
	}
	if j.def.Unique.OnHit == HitOff {
		j.Fail(by, "leave out one of the two", "by has no meaning with on_hit: off")
	}
	for _, e := range by.Elements {
		if j.def.Param(e.Text) == nil {
			j.unknownParam(e, e.Text)
		}
	}
}

// checkSchedule checks that the job can be started with what its schedule gives it.
func (j *jobDecoder) checkSchedule() {
	if j.def.Schedule == nil || len(j.Problems) > 0 {
		return
	}
	params, err := j.def.Bind(j.scheduleParams)
	if err != nil {
		j.Fail(j.at["schedule"], "give the parameters of the starts with schedule: {params: {...}}",
			"the schedule cannot start the job: %v", err)
	}
	j.def.Schedule.Params = params
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
