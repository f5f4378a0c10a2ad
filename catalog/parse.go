package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jobdir/jobdir/catalog/condition"
	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/catalog/phrase"
	"github.com/jobdir/jobdir/catalog/yamlfile"
	"github.com/jobdir/jobdir/daemon/outbox"
	"github.com/jobdir/jobdir/statefs"
)

// What is wrong with a definition file, and where.
type (
	// Position is a place in a definition file.
	Position = yamlfile.Position
	// Problem is one thing that is wrong with a definition file, for a person who has the file open in an editor.
	Problem = yamlfile.Problem
	// Problems are the problems of one or more files, in the order of the text.
	Problems = yamlfile.Problems
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

const (
	namePart    outbox.Expression = `^[a-z0-9][a-z0-9_-]*$`
	shortName   outbox.Expression = `^[a-z0-9][a-z0-9_-]{0,62}$` // of an endpoint, a lane, a limit, a step, a milestone
	handlerName outbox.Expression = `^[A-Za-z0-9][A-Za-z0-9_./-]{0,126}$`
	envName     outbox.Expression = `^[A-Za-z_][A-Za-z0-9_]*$`
	tagText     outbox.Expression = `^[^\s,\x00-\x1f\x7f]{1,64}$`
)

const shortNameHint = "small letters, digits, _ and -, a letter or digit first, 63 characters at most"

var (
	reservedGroups = []string{"api", "ui", "healthz", "readyz", "metrics", "openapi.json"}
	reservedNames  = []string{"control", "operations"}
)

// jobDecoder decodes one job, or one step into the definition of its work. Keys come in any order, so what depends on
// more than one of them is checked at the end.
type jobDecoder struct {
	*yamlfile.Decoder
	root *yamlfile.Node
	def  *Definition
	// parent is the job of a step, step the step itself, and needs where its needs are; nil for a job.
	parent *Definition
	step   *Step
	needs  []*yamlfile.Node
	// at and values have each key and its value, those of mappings with fixed keys by names such as retry.initial.
	at, values map[string]*yamlfile.Node
	uses       []use
	// steps are those of the job, in the order of the file.
	steps        []*jobDecoder
	milestonesAt []milestonePlace
	// scope is what is known of steps here.
	scope condition.Scope
	// scheduleParams are the parameters of the schedule, in their original form.
	scheduleParams url.Values
}

func newDecoder(d *yamlfile.Decoder, root *yamlfile.Node, def *Definition) *jobDecoder {
	return &jobDecoder{Decoder: d, root: root, def: def, at: map[string]*yamlfile.Node{}, values: map[string]*yamlfile.Node{}}
}

// use is a text that may hold references.
type use struct {
	at   *yamlfile.Node
	text string
	// item: ${item} has a meaning here when the job has items.
	item bool
	// filled: the reference must have a value, as a path is made of it.
	filled bool
	// early: it is needed at submit, when the operation has no ID yet.
	early bool
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

func readGroup(j *jobDecoder, n *yamlfile.Node, key string) {
	j.def.Group = j.name(n, key, append(slices.Clone(reservedGroups), reservedNames...))
}

func readName(j *jobDecoder, n *yamlfile.Node, key string) {
	j.def.Name = j.name(n, key, reservedNames)
}

func (j *jobDecoder) name(n *yamlfile.Node, key string, reserved []string) string {
	s, ok := j.Text(n, key)
	switch {
	case !ok:
	case slices.Contains(reserved, s):
		j.Fail(n, "the daemon uses this word itself", "%s cannot be %q", key, s)
	case len(s) > 61:
		j.Fail(n, "group and name together have at most 62 characters", "%s is longer than 61 characters", key)
	case !namePart.MatchString(s):
		j.Fail(n, "small letters, digits, _ and -, a letter or digit first", "%s cannot be %q", key, phrase.Clip(s))
	}
	return s
}

func readText(j *jobDecoder, n *yamlfile.Node, key string) { j.Text(n, key) }

func readSummary(j *jobDecoder, n *yamlfile.Node, key string) string {
	s, _ := j.Text(n, key)
	return strings.TrimSpace(s)
}

func readHandler(j *jobDecoder, n *yamlfile.Node, key string) {
	if s, ok := j.Text(n, key); ok {
		j.def.Handler, j.def.handlerAt = s, j.Position(n)
		if !handlerName.MatchString(s) {
			j.Fail(n, "letters, digits and _ . / -", "handler cannot be %q", phrase.Clip(s))
		}
	}
}

func readTags(j *jobDecoder, n *yamlfile.Node, key string) {
	j.def.Tags = j.Names(n, key, "tag", "up to 64 characters without spaces and commas", tagText.MatchString)
}

func readEnv(j *jobDecoder, n *yamlfile.Node, key string) {
	job := j.def.Env // which a step has too
	j.def.Env = nil
	given := func(name string) bool {
		return slices.ContainsFunc(j.def.Env, func(v EnvVar) bool { return v.Name == name })
	}
	for _, e := range j.Pairs(n, key, "write NAME: VALUE") {
		name := e.Key.Text
		switch {
		case !envName.MatchString(name):
			j.Fail(e.Key, "letters, digits and _, no digit first", "env cannot have the name %q", phrase.Clip(name))
		case strings.HasPrefix(name, "JOBDIR_"):
			j.Fail(e.Key, "names that begin with JOBDIR_ are set by the daemon", "env cannot have the name %q", phrase.Clip(name))
		case given(name):
			j.Fail(e.Key, "", "the name %q is given twice in env", phrase.Clip(name))
		}
		if s, ok := j.Written(e.Value, "the value of "+phrase.Clip(name)); ok {
			j.def.Env = append(j.def.Env, EnvVar{Name: name, Value: s})
			j.uses = append(j.uses, use{at: e.Value, text: s, item: true})
		}
	}
	job = slices.DeleteFunc(slices.Clone(job), func(e EnvVar) bool { return given(e.Name) })
	j.def.Env = append(job, j.def.Env...)
}

func readRun(j *jobDecoder, n *yamlfile.Node, key string) (run []string) {
	if n.Kind == yamlfile.Text {
		j.Fail(n, "run is a list of arguments and no shell reads it: [PROGRAM, ARGUMENT, ...]",
			"run must be a list, not a text")
		return nil
	}
	for i, e := range j.List(n, key) {
		s, ok := j.Written(e, fmt.Sprintf("argument %d of run", i))
		if ok && i == 0 && s == "" {
			j.Fail(e, "", "run has an empty program name")
		}
		run = append(run, s)
		j.uses = append(j.uses, use{at: e, text: s, item: true})
	}
	return run
}

// path reads a text that is a path or leads to one.
func (j *jobDecoder) path(n *yamlfile.Node, key string) string {
	s, ok := j.Text(n, key)
	if ok && s == "" {
		j.Fail(n, "leave the key out", "%s is empty", key)
	}
	j.uses = append(j.uses, use{at: n, text: s, filled: true})
	return s
}

func readMaxLog(j *jobDecoder, n *yamlfile.Node, _ string) {
	if n.Kind == yamlfile.Text || n.Kind == yamlfile.Integer {
		var ok bool
		if j.def.MaxLog, ok = param.ParseBytes(n.Text); ok {
			return
		}
	}
	j.Fail(n, "an amount such as 512MiB, 1GiB, or a number of bytes from 1", "max_log is not an amount of bytes")
}

func readStallAfter(j *jobDecoder, n *yamlfile.Node, key string) time.Duration {
	if n.Kind == yamlfile.Text && n.Text == "off" {
		return NoStall
	}
	return j.Duration(n, key, maxTimeout, "write off for no notice")
}
