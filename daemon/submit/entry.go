package submit

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

// Entry is a submit as one JSON object: {"job": "group/name", "params": {...}, "priority": 5, ...}. Its other
// members are the options by name; a null member counts as absent.
type Entry struct {
	Group, Job string
	// Params is the original JSON object of the parameters, nil for none.
	Params  json.RawMessage
	Options Options
}

const (
	memberJob    = "job"
	memberParams = "params"
)

// ParseEntry reads one entry. The error is an [*OptionError] or a [*catalog.ParamError].
func ParseEntry(data []byte) (Entry, error) {
	members, err := catalog.ReadObject(data)
	if err != nil {
		return Entry{}, err
	}
	var e Entry
	for name, raw := range members {
		if string(raw) == "null" {
			continue
		}
		switch name {
		case memberJob:
			err = e.setAddress(raw)
		case memberParams:
			e.Params = raw
		default:
			err = e.Options.setJSON(name, raw)
		}
		if err != nil {
			return Entry{}, err
		}
	}
	if e.Job == "" {
		return Entry{}, wrong(memberJob, `it is missing; write "job": "group/name"`)
	}
	return e, e.Options.check()
}

func (e *Entry) setAddress(raw json.RawMessage) error {
	var address string
	if err := json.Unmarshal(raw, &address); err != nil {
		return wrong(memberJob, `%s is not a text; write "group/name"`, quote(string(raw)))
	}
	group, name, ok := strings.Cut(address, "/")
	if !ok || group == "" || name == "" {
		return wrong(memberJob, `%s is not the address of a job; write "group/name"`, quote(address))
	}
	e.Group, e.Job = group, name
	return nil
}

// setJSON sets one option from a JSON value.
func (o *Options) setJSON(name string, raw json.RawMessage) error {
	is := func(into any, what string) error {
		if json.Unmarshal(raw, into) != nil {
			return wrong(name, "%s is not %s", quote(string(raw)), what)
		}
		return nil
	}
	var text string
	var texts []string
	switch name {
	case optionPriority:
		o.Priority = new(int)
		return is(o.Priority, "an integer")
	case optionAfter, optionTags:
		if err := is(&texts, "a list of texts"); err != nil {
			return err
		}
		if name == optionTags {
			o.Tags = texts
			return nil
		}
		if slices.Contains(texts, "") {
			// a URL may end with a comma; in JSON an empty ID is a mistake
			return wrong(name, "'' is not the ID of an operation")
		}
		var err error
		o.After, err = idsFrom(texts)
		return err
	case optionDelay, optionNotBefore, optionRequire, optionKey, optionIdempotencyKey:
		if err := is(&text, "a text"); err != nil {
			return err
		}
		return o.setText(name, []string{text})
	}
	return wrong(name, "there is no such member; known are %s",
		strings.Join(append([]string{memberJob, memberParams}, append(Names(), optionIdempotencyKey)...), ", "))
}

// Build makes a submission from a job, its parameters and the options; the caller adds the requester. A delay
// counts from now.
func Build(def *catalog.Definition, params catalog.Params, o Options, now time.Time) (statefs.Submission, error) {
	s := statefs.Submission{
		Group: def.Group, Job: def.Name, Params: params.JSON(), CanonicalParams: def.Identity(params),
		Tags:       joinTags(def.Tags, o.Tags),
		Definition: def.Source(), DefinitionHash: def.Hash(), OnDisconnect: string(def.OnDisconnect),
		Lane: def.Lane, Limits: def.Limits, Priority: def.Priority, IdempotencyKey: o.IdempotencyKey, Steps: def.NewSteps(),
		After: o.After, Require: o.Require, NotBefore: o.NotBefore,
	}
	if len(s.Steps) > 0 {
		s.Phase = def.Phase(s.Steps)
	}
	key, err := def.KeyFor(params)
	if err != nil {
		return statefs.Submission{}, err
	}
	s.Key = key
	if o.Key != nil {
		s.Key = *o.Key
	}
	if s.Key != "" {
		s.KeyOrder = string(def.KeyOrder)
	}
	if o.Priority != nil {
		s.Priority = *o.Priority
	}
	if o.Delay > 0 {
		s.NotBefore = new(now.Add(o.Delay))
	}
	if len(o.After) > 0 && o.Require == "" {
		s.Require = statefs.RequireSuccess
	}
	return s, nil
}

// joinTags merges the tags of a job and of a submit without duplicates.
func joinTags(ofJob, more []string) []string {
	var tags []string
	for _, tag := range slices.Concat(ofJob, more) {
		if !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}
	return tags
}
