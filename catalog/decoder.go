package catalog

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jobdir/jobdir/catalog/condition"
	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/catalog/phrase"
	"github.com/jobdir/jobdir/catalog/yamlfile"
	"github.com/jobdir/jobdir/daemon/outbox"
)

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

// milestonePlace has the position of a milestone and of its steps in the file.
type milestonePlace struct {
	at    *yamlfile.Node
	steps []*yamlfile.Node
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

// checkNeeded refuses a key that has a meaning only with another one.
func (j *jobDecoder) checkNeeded(key, other, hint string) {
	if k := j.at[key]; k != nil && j.at[other] == nil {
		j.Fail(k, hint, "%s has a meaning only with %s", key, other)
	}
}

func (j *jobDecoder) unknownParam(at *yamlfile.Node, name string) {
	wrong, hint := condition.Scope{Params: j.def.Params}.Param(name)
	j.Fail(at, hint, "%s", wrong)
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
