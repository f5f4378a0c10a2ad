package catalog

import (
	"fmt"
	"slices"

	"github.com/jobdir/jobdir/catalog/phrase"
	"github.com/jobdir/jobdir/catalog/yamlfile"
	"github.com/jobdir/jobdir/statefs"
)

// LimitName reports whether a name is valid for a limit.
func LimitName(name string) bool { return shortName.MatchString(name) }

// MaxKey is the length of the longest key, in bytes.
const MaxKey = 512

// KeyOrder is the order in which operations with the same key start.
type KeyOrder string

// The values of key_order. With the first two, an operation that cannot start yet holds up those behind it.
const (
	KeyBySubmit   KeyOrder = "submit"   // in the order in which they were submitted (default)
	KeyByPriority KeyOrder = "priority" // the highest priority first, then as submitted
	KeyAnyOrder   KeyOrder = "any"      // the earliest submitted operation that can start
)

// OnHit decides what a submit gets if an equal operation exists already.
type OnHit string

// The values of unique.on_hit.
const (
	HitReturn OnHit = "return" // that operation (default)
	HitReject OnHit = "reject" // a refusal that names it
	HitNext   OnHit = "next"   // while it runs one further operation, which waits; then that one
	HitOff    OnHit = "off"    // a new operation each time
)

// Unique decides at submit whether an equal operation is already there.
type Unique struct {
	OnHit OnHit
	// By are the parameters that make operations equal, in the order of the file; nil: all of them.
	By []string
}

// KeyFor gives the key with its references replaced, "" when the job has none or when nothing is left of it. The
// error is a [*ParamError].
func (d *Definition) KeyFor(p Params) (string, error) {
	key := Expand(d.Key, Values{Params: p})
	if len(key) > MaxKey {
		return "", &ParamError{Reason: fmt.Sprintf("the key that the job makes of its parameters is longer than %d bytes",
			MaxKey)}
	}
	return key, nil
}

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
	for _, e := range j.List(n, key) {
		s, ok := j.Text(e, "a parameter of by")
		if ok && slices.Contains(j.def.Unique.By, s) {
			j.Fail(e, "", "by names %q twice", phrase.Clip(s))
		}
		j.def.Unique.By = append(j.def.Unique.By, s)
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
	for i, name := range j.def.Unique.By {
		if j.def.Param(name) == nil {
			j.unknownParam(by.Elements[i], name)
		}
	}
}
