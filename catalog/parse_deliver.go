package catalog

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/catalog/phrase"
	"github.com/jobdir/jobdir/catalog/yamlfile"
	"github.com/jobdir/jobdir/daemon/outbox"
)

// Bounds of deliver.
const (
	maxTargets = 16
	maxPairs   = 32
)

// fixedAddress is what a URL has before anything that depends on the operation: the host is nothing that a
// parameter chooses.
const fixedAddress outbox.Expression = `^https?://[^/?#$]+/`

// deliver decodes the targets of a job.
func (j *jobDecoder) deliver(n *yamlfile.Node) {
	elements := j.List(n, "deliver")
	if len(elements) > maxTargets {
		j.Fail(n, "", "deliver has more than %d targets", maxTargets)
	}
	for _, e := range elements {
		d := &Delivery{Settings: outbox.Settings{}, at: j.Position(e)}
		if !j.Mapping(e, yamlfile.Keys{Owner: "a target of deliver", Known: kindNames()}, func(key string, k, n *yamlfile.Node) {
			if d.Kind != nil {
				j.Fail(k, "start another element of the list with -", "a target of deliver is one thing, not two")
				return
			}
			d.Kind = outbox.Kinds[slices.Index(kindNames(), key)]
			(&targetDecoder{j, d}).target(n)
		}) {
			continue
		}
		if len(e.Entries) == 0 {
			shapes := kindNames()
			for i := range shapes {
				shapes[i] += ": {...}"
			}
			j.Fail(e, "write "+phrase.OneOf(shapes), "a target of deliver is empty")
		}
		if d.Kind == nil {
			continue
		}
		if first := slices.IndexFunc(j.def.Deliver, d.collides); first >= 0 {
			j.Fail(e, "give one of them another key",
				"targets %d and %d have the same key at the same place: each would replace what the other delivered", first+1,
				len(j.def.Deliver)+1)
		}
		j.def.Deliver = append(j.def.Deliver, d)
	}
}

// targetDecoder decodes one target into d.
type targetDecoder struct {
	*jobDecoder
	d *Delivery
}

// target decodes the keys of the target.
func (j *targetDecoder) target(n *yamlfile.Node) {
	d := j.d
	keys := d.Kind.AllKeys()
	var known []string
	for _, key := range keys {
		known = append(known, key.Name)
	}
	at := map[string]*yamlfile.Node{}
	if !j.Mapping(n, yamlfile.Keys{Owner: d.Kind.Name, Known: known}, func(name string, k, value *yamlfile.Node) {
		at[name] = value
		j.setting(&keys[slices.Index(known, name)], k, value)
	}) {
		return
	}
	missing := slices.IndexFunc(keys, func(k outbox.Key) bool { return k.Required != "" && at[k.Name] == nil })
	if missing >= 0 {
		j.Fail(n, keys[missing].Required, "%s has no %s", d.Kind.Name, keys[missing].Name)
	}
	for _, key := range keys {
		if key.Default == "" || d.Settings[key.Name] != nil || d.Settings[otherSource(key.Name)] != nil {
			continue
		}
		d.Settings[key.Name] = key.Default
		if key.Type == outbox.DurationKey {
			d.Settings[key.Name], _ = param.ParseDuration(key.Default)
		}
	}
	d.Send, d.OnEnded = outbox.Send(d.Settings.Text("send")), d.Settings.Text("on") == outbox.OnEnded
	d.RetryFor = d.Settings.Duration("retry_for")
	for _, key := range keys {
		if key.Type != outbox.NameKey {
			continue
		}
		if d.Settings[key.Name] == nil {
			d.Settings[key.Name] = d.defaultKey()
		} else {
			j.deliveredKey(at[key.Name])
		}
	}
}

// otherSource returns the key for the same secret in a variable instead of a file, or in a file instead of a variable.
func otherSource(key string) string {
	if secret, is := strings.CutSuffix(key, "_file"); is {
		return secret + "_env"
	}
	return strings.TrimSuffix(key, "_env") + "_file"
}

// setting decodes one key of a target. Names are checked when all keys are known.
func (j *targetDecoder) setting(key *outbox.Key, k, n *yamlfile.Node) {
	switch key.Type {
	case outbox.WordKey:
		j.d.Settings[key.Name], _ = j.Word(n, key.Name, key.Words)
	case outbox.DurationKey:
		hint := key.Hint
		if key.Default != "" {
			hint = "leave the key out for " + key.Default
		}
		length := j.Duration(n, key.Name, key.Max, hint)
		if length > 0 && length < key.Min {
			j.Fail(n, key.Hint, "%s cannot be %s", key.Name, length)
		}
		j.d.Settings[key.Name] = length
	case outbox.MappingKey:
		j.pairs(key, n)
	case outbox.TextKey, outbox.PathKey, outbox.NameKey, outbox.AddressKey, outbox.SecretFileKey, outbox.SecretEnvKey:
		if _, both := j.d.Settings[otherSource(key.Name)]; both && key.Either != "" {
			secret := strings.TrimSuffix(strings.TrimSuffix(key.Name, "_file"), "_env")
			j.Fail(k, key.Either, "%s_file and %s_env exclude each other", secret, secret)
		}
		if s, ok := j.Text(n, key.Name); ok {
			j.d.Settings[key.Name] = s
			j.targetText(key, n, s)
		}
	}
}

// targetText checks a text of a target.
func (j *targetDecoder) targetText(key *outbox.Key, n *yamlfile.Node, s string) {
	if key.Type == outbox.AddressKey {
		j.address(key, n, s)
		return
	}
	if key.Fixed != "" && !j.unreferenced(n, key.Name, key.Fixed) {
		return
	}
	if key.Check != nil {
		if err := key.Check(s); err != nil {
			j.Fail(n, key.Hint, "%s", err) // which has the text only if that can have no password
		}
		return
	}
	if key.Pattern != "" && !key.Pattern.MatchString(s) {
		j.Fail(n, key.Hint, "%s cannot be %q", key.Name, phrase.Clip(s))
	}
	j.place(key, key.Type, n, s)
}

// place checks a path, or where a secret is.
func (j *targetDecoder) place(key *outbox.Key, of outbox.Type, n *yamlfile.Node, s string) {
	verb := "be"
	if key.Type == outbox.MappingKey {
		verb = "have the " + string(of)
	}
	switch {
	case of == outbox.SecretFileKey && !j.unreferenced(n, key.Name, "a secret comes from no parameter"):
	case of == outbox.SecretEnvKey && !outbox.SecretName.MatchString(s):
		j.Fail(n, "it is a name that begins with "+outbox.SecretPrefix+", which no command gets", "%s cannot %s %q", key.Name,
			verb, phrase.Clip(s))
	case (of == outbox.SecretFileKey || of == outbox.PathKey) && !filepath.IsAbs(s):
		j.Fail(n, "write it from the root, such as "+key.Hint, "%s cannot %s %q", key.Name, verb, phrase.Clip(s))
	}
}

// sample returns a text with an x for each reference.
func sample(s string) string { return replace(s, func(string) string { return "x" }) }

// address checks a URL whose path and query may depend on the operation.
func (j *targetDecoder) address(key *outbox.Key, n *yamlfile.Node, s string) {
	j.uses = append(j.uses, use{at: n, text: s, filled: true})
	if err := outbox.CheckAddress(sample(s)); err != nil {
		j.Fail(n, "write https://HOST/PATH", "%s cannot be used: %s", key.Name, err) // it may have a password
		return
	}
	if refers(s) && !fixedAddress.MatchString(s) {
		j.Fail(n, "references belong into the path or the query", "%s lets a parameter choose the host", key.Name)
	}
}

// pairs decodes a mapping of names to texts, or to where secrets are.
func (j *targetDecoder) pairs(key *outbox.Key, n *yamlfile.Node) {
	if len(n.Entries) > maxPairs {
		j.Fail(n, "", "%s has more than %d names", key.Name, maxPairs)
	}
	size := 0
	for _, e := range j.Pairs(n, key.Name, "write NAME: VALUE") {
		name := j.pairName(key, e.Key)
		if s, ok := j.pairValue(key, name, e.Value); ok {
			size += len(name) + len(s)
			j.d.Settings[key.Name] = append(j.d.Settings.Pairs(key.Name), outbox.Pair{Name: name, Value: s})
		}
	}
	if key.MaxBytes > 0 && size > key.MaxBytes {
		j.Fail(n, "servers take 2 KB in all", "%s has more than %d bytes", key.Name, key.MaxBytes)
	}
}

// pairName reads a name that no mapping with the same names has.
func (j *targetDecoder) pairName(key *outbox.Key, n *yamlfile.Node) string {
	name := n.Text
	if key.Names.Canonical != nil {
		name = key.Names.Canonical(name)
	}
	known := slices.ContainsFunc(j.d.Kind.Keys, func(other outbox.Key) bool {
		return other.Names == key.Names && slices.ContainsFunc(j.d.Settings.Pairs(other.Name),
			func(p outbox.Pair) bool { return p.Name == name })
	})
	switch {
	case !key.Names.Pattern.MatchString(name):
		j.Fail(n, key.Names.Hint, "%s cannot have the name %q", key.Name, phrase.Clip(name))
	case slices.Contains(key.Names.Taken, name):
		j.Fail(n, "the daemon sets it", "%s cannot have the name %q", key.Name, name)
	case known:
		j.Fail(n, "", "the name %q is given twice in %s", phrase.Clip(name), key.Names.In)
	}
	return name
}

func (j *targetDecoder) pairValue(key *outbox.Key, name string, n *yamlfile.Node) (string, bool) {
	if key.Values != outbox.TextKey {
		s, ok := j.Text(n, phrase.Clip(name))
		if ok {
			j.place(key, key.Values, n, s)
		}
		return s, ok
	}
	s, ok := j.Written(n, "the value of "+phrase.Clip(name))
	if !ok {
		return "", false
	}
	if !key.Pattern.MatchString(s) {
		j.Fail(n, "visible characters of ASCII and spaces", "the value of %s cannot be sent", phrase.Clip(name))
	}
	if key.Fixed != "" {
		j.unreferenced(n, "a header", key.Fixed)
	} else {
		j.uses = append(j.uses, use{at: n, text: s})
	}
	return s, true
}

// deliveredKey checks a name that depends on the operation.
func (j *targetDecoder) deliveredKey(n *yamlfile.Node) {
	j.uses = append(j.uses, use{at: n, text: n.Text, filled: true})
	name := sample(resultReference.ReplaceAllString(n.Text, "x"))
	if strings.Contains(strings.ReplaceAll(name, ArtifactReference, ""), "${") {
		j.Fail(n, "${id}, ${params.NAME}, ${result.NAME} and, with send: artifacts, ${artifact} are known here",
			"key has an unknown reference: %q", phrase.Clip(n.Text))
	}
	if !refers(n.Text) && !resultReference.MatchString(n.Text) {
		j.Fail(n, "put ${id} in it", "key is the same for every operation: each would replace what the one before delivered")
	}
	switch named := strings.Contains(n.Text, ArtifactReference); {
	case named && j.d.Send != outbox.SendArtifacts:
		j.Fail(n, "it is the name of an artifact, with send: artifacts", "${artifact} cannot be used here")
	case !named && j.d.Send == outbox.SendArtifacts:
		j.Fail(n, "put ${artifact} in it", "key is the same for every artifact: each would replace the one before")
	}
	if err := checkDeliveredName(name); err != nil {
		j.Fail(n, "it is a name at the target, such as results/${id}.json", "%s", err)
	}
}

// unreferenced refuses references where they mean nothing, and reports whether there are none.
func (j *targetDecoder) unreferenced(n *yamlfile.Node, what, hint string) bool {
	ref := firstReference(n.Text)
	if ref != "" {
		j.Fail(n, hint, "%s cannot have ${%s}", what, phrase.Clip(ref))
	}
	return ref == ""
}
