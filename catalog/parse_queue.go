package catalog

import (
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/catalog/condition"
	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/catalog/phrase"
	"github.com/jobdir/jobdir/catalog/schedule"
	"github.com/jobdir/jobdir/catalog/yamlfile"
	"github.com/jobdir/jobdir/statefs"
)

// LimitName reports whether a name is valid for a limit.
func LimitName(name string) bool { return shortName.MatchString(name) }

// maxLimits bounds the limits of a job: each is checked at every start.
const maxLimits = 16

func readLane(j *jobDecoder, n *yamlfile.Node, key string) {
	s, ok := j.Text(n, key)
	switch {
	case !ok:
	case s == statefs.AllLanes:
		j.Fail(n, "it means every lane", "lane cannot be %q", s)
	case !statefs.ValidLane(s):
		j.Fail(n, shortNameHint, "lane cannot be %q", phrase.Clip(s))
	}
	j.def.Lane = s
}

func readKey(j *jobDecoder, n *yamlfile.Node, key string) {
	s, ok := j.Written(n, key)
	switch {
	case !ok:
	case s == "":
		j.Fail(n, "leave the key out", "key is empty")
	case len(s) > MaxKey:
		j.Fail(n, "", "key is longer than %d bytes", MaxKey)
	}
	j.uses = append(j.uses, use{at: n, text: s, early: true})
	j.def.Key = s
}

func readLimits(j *jobDecoder, n *yamlfile.Node, key string) {
	j.def.Limits = j.Names(n, key, "limit", shortNameHint, LimitName)
	if len(j.def.Limits) > maxLimits {
		j.Fail(n, "", "limits has more than %d names", maxLimits)
	}
}

func readUniqueBy(j *jobDecoder, n *yamlfile.Node, key string) {
	j.def.Unique.By, _ = j.Texts(n, key, "a parameter of by", "by names %q twice")
}

// checkCron reads the line and the time zone of a schedule.
func checkCron(j *jobDecoder, n *yamlfile.Node) {
	at := func(key string) *yamlfile.Node { return j.values["schedule."+key] }
	if at("cron") == nil {
		j.Fail(n, `add cron: "0 3 * * *"`, "schedule has no cron line")
		return
	}
	zone := ""
	if at("timezone") != nil {
		zone = at("timezone").Text
	}
	spec, err := schedule.Parse(at("cron").Text, zone)
	if wrong, ok := errors.AsType[*schedule.FieldError](err); ok {
		j.Fail(at(wrong.Field), "", "%s", wrong.Error())
	}
	j.def.Schedule.Spec = spec
}

// readScheduleParams reads the parameters of the starts as they are written.
func readScheduleParams(j *jobDecoder, n *yamlfile.Node, key string) {
	j.scheduleParams = url.Values{}
	for _, e := range j.Pairs(n, key, "write NAME: VALUE") {
		if text, ok := j.Written(e.Value, "the value of "+phrase.Clip(e.Key.Text)); ok {
			j.scheduleParams.Add(e.Key.Text, text)
		}
	}
}

func checkThen(j *jobDecoder, n *yamlfile.Node) {
	if j.at["then.job"] == nil {
		j.Fail(n, "write {job: group/name, params: {...}}", "then has no job")
	}
}

func readThenJob(j *jobDecoder, n *yamlfile.Node, key string) {
	s, ok := j.Text(n, key)
	if !ok {
		return
	}
	group, name, cut := strings.Cut(s, "/")
	if !cut || !namePart.MatchString(group) || !namePart.MatchString(name) || len(s) > 63 {
		j.Fail(n, "write group/name", "job cannot be %q", phrase.Clip(s))
		return
	}
	j.def.Then.Group, j.def.Then.Name, j.def.Then.at = group, name, j.Position(n)
}

func readThenParams(j *jobDecoder, n *yamlfile.Node, key string) {
	t := j.def.Then
	for _, e := range j.Pairs(n, key, "write NAME: VALUE") {
		name := e.Key.Text
		if slices.ContainsFunc(t.Params, func(p ThenParam) bool { return p.Name == name }) {
			j.Fail(e.Key, "", "the parameter %q is given twice", phrase.Clip(name))
			continue
		}
		value, what := e.Value, "the value of "+phrase.Clip(name)
		raw := json.RawMessage(value.JSON())
		switch value.Kind {
		case yamlfile.Text:
			if !j.NoNUL(value, what) {
				continue
			}
			checkThenReferences(j, value)
		case yamlfile.Integer:
			if _, ok := j.Integer(value, what); !ok {
				continue
			}
		case yamlfile.Boolean:
		case yamlfile.Number:
			number, reason := param.ParseNumber(value.Text)
			if reason != "" {
				j.Fail(value, "write it as 0.5 or 1e3", "%s: %s", what, reason)
				continue
			}
			raw = json.RawMessage(number.Text())
		case yamlfile.Mapping, yamlfile.List, yamlfile.Null:
			j.Fail(value, "write a text, a number or a boolean; ${result.NAME} gives any value", "%s cannot be %s", what, value.Kind)
			continue
		}
		t.Params = append(t.Params, ThenParam{Name: name, Value: raw, at: j.Position(e.Key)})
	}
}

func checkThenReferences(j *jobDecoder, n *yamlfile.Node) {
	for p := range pieces(n.Text) {
		if strings.HasPrefix(p.ref, condition.StepsPrefix) {
			j.Fail(n, "the outputs of steps are members of the result: write ${result.NAME}",
				"${%s} cannot be used here", phrase.Clip(p.ref))
		}
	}
	for _, found := range thenReference.FindAllStringSubmatch(n.Text, -1) {
		if name, isParam := strings.CutPrefix(found[1], "params."); isParam {
			j.uses = append(j.uses, use{at: n, text: "${params." + name + "}"})
		}
	}
}
