package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jobdir/jobdir/catalog/phrase"
	"github.com/jobdir/jobdir/daemon/outbox"
)

// Delivery is one target of deliver.
type Delivery struct {
	Kind *outbox.Kind
	// Settings are what the job says of the target, with defaults for what it leaves out.
	Settings outbox.Settings
	Send     outbox.Send
	// OnEnded is set if every end is delivered, and not only a completed operation.
	OnEnded bool
	// RetryFor is how long after the end of the operation it is tried; 0 is for ever.
	RetryFor time.Duration

	at Position
}

// DeliveryKinds are the names of the kinds of targets, the newest kind first.
func DeliveryKinds() []string {
	names := kindNames()
	slices.Reverse(names)
	return names
}

func kindNames() (names []string) {
	for _, k := range outbox.Kinds {
		names = append(names, k.Name)
	}
	return names
}

// Target returns the target with what all targets of a daemon share.
func (d *Delivery) Target(shared *outbox.Shared) outbox.Target {
	return d.Kind.Target(d.Settings, shared)
}

// text returns the text of the first key of a type, "" if there is none.
func (d *Delivery) text(of outbox.Type) string {
	for _, key := range d.Kind.Keys {
		if key.Type == of {
			return d.Settings.Text(key.Name)
		}
	}
	return ""
}

// Named reports whether what is delivered has a name at the target that may be shown. An address may contain secrets.
func (d *Delivery) Named() bool { return d.text(outbox.NameKey) != "" }

// collides reports whether two deliveries write to the same file or object.
func (d *Delivery) collides(other *Delivery) bool {
	nowhere := new(outbox.Shared)
	return d.Named() && d.text(outbox.NameKey) == other.text(outbox.NameKey) &&
		d.Target(nowhere).Place() == other.Target(nowhere).Place()
}

// defaultKey returns the name at the target if the job sets none.
func (d *Delivery) defaultKey() string {
	switch d.Send {
	case outbox.SendLog:
		return "${id}.log"
	case outbox.SendArtifacts:
		return "${id}/" + ArtifactReference
	case outbox.SendResult, outbox.SendRecord:
	}
	return "${id}.json"
}

// Name returns the destination of an operation at the target: a file name below the folder or an object name
// in the bucket, with slashes, or an address; "" of a kind that has neither. For artifacts it is the common part
// of their names, with ${artifact}. The error explains why there is none: the parameters or the result lead
// outside of the target, or the result lacks a member that the key uses.
func (d *Delivery) Name(v Values) (string, error) {
	if d.Named() {
		name, err := expandKey(d.text(outbox.NameKey), v)
		if err != nil {
			return "", err
		}
		return name, checkDeliveredName(name)
	}
	address := d.text(outbox.AddressKey)
	if address == "" {
		return "", nil
	}
	address = replace(address, func(ref string) string {
		return strings.ReplaceAll(url.QueryEscape(v.reference(ref)), "+", "%20")
	})
	return address, outbox.CheckAddress(address)
}

// ArtifactReference is the placeholder for the name of an artifact in a key.
const ArtifactReference = "${artifact}"

// Artifact returns the name at the target for an artifact of an operation. The error explains why it has
// none.
func (d *Delivery) Artifact(v Values, name string) (string, error) {
	parts := strings.Split(d.text(outbox.NameKey), ArtifactReference)
	for i := range parts { // not the whole: a value may have the same text in it
		var err error
		if parts[i], err = expandKey(parts[i], v); err != nil {
			return "", err
		}
	}
	full := strings.Join(parts, name)
	return full, checkDeliveredName(full)
}

// Bounds of names, those of common file systems.
const (
	maxDeliveredName = 1024
	maxNamePart      = 200
)

// checkDeliveredName returns why a file below a folder, or an object in a bucket, cannot have a name.
func checkDeliveredName(name string) error {
	switch {
	case len(name) > maxDeliveredName:
		return fmt.Errorf("the key is longer than %d bytes", maxDeliveredName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("the key %q has characters that no name has", phrase.Clip(name))
	case strings.Contains(name, `\`):
		return fmt.Errorf(`the key %q has a \`, phrase.Clip(name))
	case strings.HasPrefix(name, "/"):
		return fmt.Errorf("the key %q starts with / and would lead outside the folder", phrase.Clip(name))
	}
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "." || part == "..":
			return fmt.Errorf("the key %q has the part %q and would lead outside", phrase.Clip(name), part)
		case part == "":
			return fmt.Errorf("the key %q has an empty part", phrase.Clip(name))
		case len(part) > maxNamePart:
			return fmt.Errorf("the key has a part of more than %d bytes: %q", maxNamePart, phrase.Clip(part))
		}
	}
	return nil
}

// resultReference finds what is replaced in a key by a member of the result.
var resultReference = regexp.MustCompile(`\$\{result\.([A-Za-z0-9_-]+)\}`)

// expandKey replaces the references in a key once; references inside values stay. The error names the member
// of the result that cannot be part of a name.
func expandKey(key string, v Values) (string, error) {
	var b strings.Builder
	at := 0
	for _, m := range resultReference.FindAllStringSubmatchIndex(key, -1) {
		b.WriteString(Expand(key[at:m[0]], v))
		text, err := v.resultText(key[m[2]:m[3]])
		if err != nil {
			return "", err
		}
		b.WriteString(text)
		at = m[1]
	}
	b.WriteString(Expand(key[at:], v))
	return b.String(), nil
}

// resultText is a member of the result as a part of a name: a short text that is not empty, a number, or true or false.
func (v Values) resultText(name string) (string, error) {
	raw, ok := json.RawMessage(nil), false
	if v.Result != nil {
		raw, ok = v.Result(name)
	}
	raw = bytes.TrimSpace(raw)
	var text string
	switch {
	case !ok || len(raw) == 0 || bytes.Equal(raw, []byte("null")):
		return "", fmt.Errorf("the result has no member %q, which the key needs", name)
	case raw[0] == '{' || raw[0] == '[':
		return "", fmt.Errorf("the member %q of the result, which the key needs, is neither a text nor a number", name)
	case raw[0] != '"':
		text = string(raw)
	case json.Unmarshal(raw, &text) != nil:
		return "", fmt.Errorf("the member %q of the result, which the key needs, cannot be read", name)
	}
	switch {
	case text == "":
		return "", fmt.Errorf("the member %q of the result, which the key needs, is empty", name)
	case len(text) > maxNamePart:
		return "", fmt.Errorf("the member %q of the result, which the key needs, is longer than %d bytes", name, maxNamePart)
	}
	return text, nil
}
