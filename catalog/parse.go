package catalog

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
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
	j := jobDecoder{decoder: decoder{file: file}, root: root, def: &Definition{
		Parallel: 1, Retry: Retry{MaxAttempts: 1}, FailWhen: FailNever, OnDisconnect: DisconnectContinue,
		Lane: DefaultLane, KeyOrder: KeyBySubmit, Unique: Unique{OnHit: HitReturn},
		source: doc.text, at: Position{File: file, Line: root.line, Column: root.column},
	}}
	j.decode()
	return j.def, j.problems
}

// The keys of a job file. The JSON Schema has the same ones; a test compares.
var (
	jobKeys = keySet{
		owner: "a job",
		known: []string{
			"group", "name", "summary", "params", "tags", "dir", "env", "run", "items", "parallel", "handler",
			"max_log", "fail_when", "on_disconnect", "grace", "timeout", "stall_after", "on_stall", "restart", "retry",
			"crash_limit", "queue_timeout", "deadline", "exit_codes", "lane", "limits", "key", "key_order", "priority",
			"unique", "schedule", "then",
			"steps", "milestones", "deliver", "unsafe_shell",
		},
		other: []string{"needs", "optional", "approve", "when", "milestone", "errors", "outputs"},
		where: "it is a key of a step",
	}
	paramKeys = keySet{
		owner: "a parameter",
		known: []string{"type", "required", "default", "minimum", "maximum", "enum", "pattern", "normalize", "summary"},
	}
	retryKeys = keySet{owner: "retry", known: []string{
		"max_attempts", "initial", "factor", "cap",
		"jitter", "retry_for",
	}}
	exitCodesKeys  = keySet{owner: "exit_codes", known: []string{"retryable", "manual", "warn", "final"}}
	crashLimitKeys = keySet{owner: "crash_limit", known: []string{"burst", "within"}}
	itemsKeys      = keySet{owner: "items", known: []string{"glob", "list", "range"}}
)

var (
	namePart     = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)
	endpointName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
	handlerName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_./-]{0,126}$`)
	envName      = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	tagText      = regexp.MustCompile(`^[^\s,\x00-\x1f\x7f]{1,64}$`)
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
	at   map[string]*node // key of each entry of the job
	uses []use
	// runAt are the arguments of run.
	runAt []*node
	// steps are those of the job, in the order of the file.
	steps        []*stepDecoder
	milestonesAt []milestonePlace
	// scope is what is known of steps here.
	scope stepScope
	// scheduleParams are the parameters of the schedule, in their original form.
	scheduleParams url.Values
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

func (j *jobDecoder) decode() {
	j.at = map[string]*node{}
	if !j.mapping(j.root, jobKeys, j.key) {
		return
	}
	j.checkAddress()
	j.checkWork()
	j.checkEnding()
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

// key decodes the value of one key of the job.
func (j *jobDecoder) key(key string, k, n *node) {
	j.at[key] = k
	def := j.def
	switch key {
	case "group":
		def.Group = j.name(n, key, append(slices.Clone(reservedGroups), reservedNames...))
	case "name":
		def.Name = j.name(n, key, reservedNames)
	case "summary":
		s, _ := j.text(n, key)
		def.Summary = strings.TrimSpace(s)
	case "params":
		j.params(n)
	case "tags":
		j.tags(n)
	case "dir":
		def.Dir = j.path(n, key)
	case "env":
		j.env(n)
	case "run":
		j.run(n)
	case "unsafe_shell":
		j.unsafeShell(n)
	case "items":
		j.items(n)
	case "parallel":
		if v, ok := j.integer(n, key); ok {
			def.Parallel = int(v)
			if v < 1 || v > 256 {
				j.fail(n, "it is 1 to 256", "parallel cannot be %d", v)
			}
		}
	case "handler":
		if s, ok := j.text(n, key); ok {
			def.Handler, def.handlerAt = s, j.position(n)
			if !handlerName.MatchString(s) {
				j.fail(n, "letters, digits and _ . / -", "handler cannot be %q", clip(s))
			}
		}
	case "max_log":
		j.maxLog(n)
	case "fail_when":
		s, _ := j.word(n, key, []string{string(FailAny), string(FailAll), string(FailNever)})
		def.FailWhen = FailWhen(s)
	case "on_disconnect":
		s, _ := j.word(n, key, []string{string(DisconnectContinue), string(DisconnectCancel), string(DisconnectPause)})
		def.OnDisconnect = OnDisconnect(s)
	case "lane", "limits", "key", "key_order", "priority", "unique":
		j.queue(key, n)
	case "then":
		j.then(n)
	case "deliver":
		j.deliver(n)
	case "steps":
		j.readSteps(n)
	case "milestones":
		j.milestones(n)
	default:
		j.ending(key, n)
	}
}

func (j *jobDecoder) name(n *node, key string, reserved []string) string {
	s, ok := j.text(n, key)
	switch {
	case !ok:
	case slices.Contains(reserved, s):
		j.fail(n, "the daemon uses this word itself", "%s cannot be %q", key, s)
	case len(s) > 61:
		j.fail(n, "group and name together have at most 62 characters", "%s is longer than 61 characters", key)
	case !namePart.MatchString(s):
		j.fail(n, "small letters, digits, _ and -, a letter or digit first", "%s cannot be %q", key, clip(s))
	}
	return s
}

func (j *jobDecoder) tags(n *node) {
	for _, e := range j.list(n, "tags") {
		s, ok := j.text(e, "a tag")
		switch {
		case !ok:
		case !tagText.MatchString(s):
			j.fail(e, "up to 64 characters without spaces and commas", "a tag cannot be %q", clip(s))
		case slices.Contains(j.def.Tags, s):
			j.fail(e, "", "the tag %q is given twice", s)
		}
		j.def.Tags = append(j.def.Tags, s)
	}
}

func (j *jobDecoder) env(n *node) {
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

func (j *jobDecoder) run(n *node) {
	if n.kind == textKind {
		j.fail(n, "run is a list of arguments and no shell reads it: [PROGRAM, ARGUMENT, ...]",
			"run must be a list, not a text")
		return
	}
	for i, e := range j.list(n, "run") {
		s, ok := j.written(e, fmt.Sprintf("argument %d of run", i))
		if ok && i == 0 && s == "" {
			j.fail(e, "", "run has an empty program name")
		}
		j.def.Run, j.runAt = append(j.def.Run, s), append(j.runAt, e)
		j.uses = append(j.uses, use{at: e, text: s, item: true})
	}
}

// path reads a text that is a path or leads to one.
func (j *jobDecoder) path(n *node, what string) string {
	s, ok := j.text(n, what)
	if ok && s == "" {
		j.fail(n, "leave the key out", "%s is empty", what)
	}
	j.uses = append(j.uses, use{at: n, text: s, filled: true})
	return s
}

func (j *jobDecoder) maxLog(n *node) {
	if n.kind == textKind || n.kind == integerKind {
		var ok bool
		if j.def.MaxLog, ok = parseBytes(n.text); ok {
			return
		}
	}
	j.fail(n, "an amount such as 512MiB, 1GiB, or a number of bytes from 1", "max_log is not an amount of bytes")
}
