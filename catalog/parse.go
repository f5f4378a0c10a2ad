package catalog

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Parse reads the jobs of one file, one for each YAML document. file is used in
// messages alone. The error is [Problems], each with its place; the definitions
// are all of the file or none. Documents with nothing but comments are skipped.
func Parse(file string, data []byte) ([]*Definition, error) {
	documents, problem := splitDocuments(file, data)
	if problem != nil {
		return nil, Problems{problem}
	}
	var definitions []*Definition
	var problems Problems
	for _, doc := range documents {
		if doc.blank() {
			continue
		}
		def, ps := parseDocument(file, doc)
		problems = append(problems, ps...)
		definitions = append(definitions, def)
		if len(problems) >= maxProblems {
			break
		}
	}
	if len(problems) > 0 {
		problems.sort()
		return nil, problems
	}
	return definitions, nil
}

func parseDocument(file string, doc document) (*Definition, Problems) {
	root, problem := parseNode(file, doc)
	if problem != nil {
		return nil, Problems{problem}
	}
	def := &Definition{source: doc.text, at: Position{File: file, Line: root.line, Column: root.column}}
	jobKeys.clear(def)
	j := newDecoder(decoder{file: file}, root, jobKeys, def)
	j.job()
	return def, j.problems
}

var (
	namePart     = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)
	endpointName = words(`[a-z0-9][a-z0-9_-]*`, 63)
	handlerName  = words(`[A-Za-z0-9][A-Za-z0-9_./-]*`, 127)
	envName      = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	tagText      = words(`[^\s,\x00-\x1f\x7f]+`, 64)
)

var (
	reservedGroups = []string{"api", "ui", "healthz", "readyz", "metrics", "openapi.json"}
	reservedNames  = []string{"control", "operations"}
)

// jobDecoder decodes one job. Keys come in any order, so what depends on more
// than one of them is checked at the end.
type jobDecoder struct {
	decoder
	root *node
	def  *Definition
	// keys is [jobKeys], which its own readers cannot name.
	keys table
	// at and values have each key and its value, those of mappings with fixed keys by names such as retry.initial.
	at, values map[string]*node
	uses       []use
	// steps are those of the job, in the order of the file.
	steps        []*stepDecoder
	milestonesAt []milestonePlace
	// scope is what is known of steps here.
	scope stepScope
	// scheduleParams are the parameters of the schedule, in their original form.
	scheduleParams url.Values
}

func newDecoder(d decoder, root *node, keys table, def *Definition) jobDecoder {
	return jobDecoder{decoder: d, root: root, keys: keys, def: def, at: map[string]*node{}, values: map[string]*node{}}
}

// use is a text that may hold references.
type use struct {
	at   *node
	text string
	// item: ${item} has a meaning here when the job has items.
	item bool
	// filled: the reference must have a value, as a path is made of it.
	filled bool
	// early: it is needed at submit, when the operation has no ID yet.
	early bool
}

func (j *jobDecoder) job() {
	if !j.decode(j.root, j.keys.set("a job", inJob, "it is a key of a step"), j.keys, inJob, "") {
		return
	}
	j.checkAddress()
	j.checkWork()
	j.checkRestart()
	if k := j.at["on_stall"]; k != nil && j.at["stall_after"] == nil {
		j.fail(k, "add stall_after", "on_stall has a meaning only with stall_after")
	}
	j.checkQueue()
	j.checkSteps()
	j.checkReferences()
	j.checkSchedule()
	if len(j.problems) == 0 {
		j.warnOfScripts()
		j.noteIneffective(settings{Definition: j.def, at: func(key string) *node { return j.at[key] }})
		for _, s := range j.steps {
			if s.step.Work != nil {
				at := func(key string) *node { return s.at[key] }
				j.noteIneffective(settings{Definition: s.step.Work, job: j.def, step: s.step, at: at})
			}
		}
	}
}

func readGroup(j *jobDecoder, n *node, key string) {
	j.def.Group = j.name(n, key, append(slices.Clone(reservedGroups), reservedNames...))
}

func readName(j *jobDecoder, n *node, key string) { j.def.Name = j.name(n, key, reservedNames) }

func (d *decoder) name(n *node, key string, reserved []string) string {
	s, ok := d.text(n, key)
	switch {
	case !ok:
	case slices.Contains(reserved, s):
		d.fail(n, "the daemon uses this word itself", "%s cannot be %q", key, s)
	case len(s) > 61:
		d.fail(n, "group and name together have at most 62 characters", "%s is longer than 61 characters", key)
	case !namePart.MatchString(s):
		d.fail(n, "small letters, digits, _ and -, a letter or digit first", "%s cannot be %q", key, clip(s))
	}
	return s
}

func readText(j *jobDecoder, n *node, key string) { j.text(n, key) }

func readSummary(j *jobDecoder, n *node, key string) string {
	s, _ := j.text(n, key)
	return strings.TrimSpace(s)
}

func readHandler(j *jobDecoder, n *node, key string) {
	if s, ok := j.text(n, key); ok {
		j.def.Handler, j.def.handlerAt = s, j.position(n)
		if !handlerName.MatchString(s) {
			j.fail(n, "letters, digits and _ . / -", "handler cannot be %q", clip(s))
		}
	}
}

func readTags(j *jobDecoder, n *node, key string) {
	j.def.Tags = j.names(n, key, "tag", "up to 64 characters without spaces and commas", tagText.MatchString)
}

func readEnv(j *jobDecoder, n *node, _ string) {
	if n.kind != mappingKind {
		j.fail(n, "write NAME: VALUE", "env must be a mapping, not %s", n.kind)
		return
	}
	for _, e := range n.entries {
		name := e.key.text
		switch {
		case !envName.MatchString(name):
			j.fail(e.key, "letters, digits and _, no digit first", "env cannot have the name %q", clip(name))
		case strings.HasPrefix(name, "JOBDIR_"):
			j.fail(e.key, "names that begin with JOBDIR_ are set by the daemon", "env cannot have the name %q", clip(name))
		case slices.ContainsFunc(j.def.Env, func(v EnvVar) bool { return v.Name == name }):
			j.fail(e.key, "", "the name %q is given twice in env", clip(name))
		}
		if s, ok := j.written(e.value, "the value of "+clip(name)); ok {
			j.def.Env = append(j.def.Env, EnvVar{Name: name, Value: s})
			j.uses = append(j.uses, use{at: e.value, text: s, item: true})
		}
	}
}

// inheritEnv gives a step the environment of the job too.
func inheritEnv(work, own *Definition) {
	var env []EnvVar
	for _, e := range work.Env {
		if !slices.ContainsFunc(own.Env, func(o EnvVar) bool { return o.Name == e.Name }) {
			env = append(env, e)
		}
	}
	work.Env = slices.Concat(env, own.Env)
}

func readRun(j *jobDecoder, n *node, key string) (run []string) {
	if n.kind == textKind {
		j.fail(n, "run is a list of arguments and no shell reads it: [PROGRAM, ARGUMENT, ...]",
			"run must be a list, not a text")
		return nil
	}
	for i, e := range j.list(n, key) {
		s, ok := j.written(e, fmt.Sprintf("argument %d of run", i))
		if ok && i == 0 && s == "" {
			j.fail(e, "", "run has an empty program name")
		}
		run = append(run, s)
		j.uses = append(j.uses, use{at: e, text: s, item: true})
	}
	return run
}

// path reads a text that is a path or leads to one.
func (j *jobDecoder) path(n *node, key string) string {
	s, ok := j.text(n, key)
	if ok && s == "" {
		j.fail(n, "leave the key out", "%s is empty", key)
	}
	j.uses = append(j.uses, use{at: n, text: s, filled: true})
	return s
}

func readMaxLog(j *jobDecoder, n *node, _ string) {
	if n.kind == textKind || n.kind == integerKind {
		var ok bool
		if j.def.MaxLog, ok = parseBytes(n.text); ok {
			return
		}
	}
	j.fail(n, "an amount such as 512MiB, 1GiB, or a number of bytes from 1", "max_log is not an amount of bytes")
}

func readStallAfter(j *jobDecoder, n *node, key string) time.Duration {
	if n.kind == textKind && n.text == "off" {
		return NoStall
	}
	return j.duration(n, key, maxTimeout, "write off for no notice")
}
