package catalog

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Send is the part of an operation that is delivered.
type Send string

// The values of send.
const (
	SendResult Send = "result" // the footer of the stream: a JSON object (default)
	SendRecord Send = "record" // everything known of the operation: a JSON object
	SendLog    Send = "log"    // the sealed log; not to webhooks
	// SendArtifacts is each file that the work left, on its own; not to webhooks.
	SendArtifacts Send = "artifacts"
)

// DeliverOn selects the results that are delivered.
type DeliverOn string

// The values of on.
const (
	OnCompleted DeliverOn = "completed" // the operation is completed, also with a partial result (default)
	OnEnded     DeliverOn = "ended"     // it has ended, in whatever way
)

// The kinds of target.
const (
	FolderKind  = "folder"
	WebhookKind = "webhook"
)

// DefaultWebhookTimeout is the time limit for the answer of a webhook if the job sets none.
const DefaultWebhookTimeout = 30 * time.Second

// Delivery is one target of deliver. One of Folder, Webhook and S3 is set.
type Delivery struct {
	Send Send
	On   DeliverOn
	// RetryFor is how long after the end of the operation it is tried; 0 is for ever.
	RetryFor time.Duration
	Folder   *FolderTarget
	Webhook  *WebhookTarget
	S3       *S3Target

	at Position
}

// FolderTarget is a folder of this machine.
type FolderTarget struct {
	Path string // absolute
	Key  string // name of the file below Path, as written, with references
}

// WebhookTarget is an address that takes a request of HTTP.
type WebhookTarget struct {
	URL     string // as written, with references in its path and query
	Method  string // POST, PUT or PATCH
	Headers []EnvVar
	// SecretHeaders are headers with secret values, which are never shown.
	SecretHeaders []SecretHeader
	// SecretFile is a file with the secret that signs, SecretEnv the environment variable of the daemon with it; both
	// "" signs nothing.
	SecretFile, SecretEnv string
	Timeout               time.Duration
}

// SecretHeader is a header and where its value is.
type SecretHeader struct {
	Name string
	From SecretSource
}

// Kind is the kind of the target: the key under which the file has it.
func (d *Delivery) Kind() string {
	switch {
	case d.Webhook != nil:
		return WebhookKind
	case d.S3 != nil:
		return S3Kind
	}
	return FolderKind
}

// DeliveryKinds are the kinds of targets.
func DeliveryKinds() []string { return []string{S3Kind, WebhookKind, FolderKind} }

// Target is where everything of this delivery goes, whatever the operation is: what is out of reach for one operation
// is so for all that have the same. Where a secret comes from is part of it: while that cannot be read, nothing that
// is signed with it can go.
func (d *Delivery) Target() string {
	switch {
	case d.Webhook != nil:
		t := []string{WebhookKind, d.Webhook.URL, d.Webhook.SecretFile + d.Webhook.SecretEnv}
		for _, h := range d.Webhook.SecretHeaders {
			t = append(t, h.From.File+h.From.Env)
		}
		return strings.TrimSpace(strings.Join(t, " "))
	case d.S3 != nil:
		t := []string{S3Kind, d.S3.Endpoint + "/" + d.S3.Bucket}
		for _, from := range []SecretSource{d.S3.AccessKey, d.S3.SecretKey, d.S3.SessionToken} {
			t = append(t, from.File+from.Env)
		}
		return strings.TrimSpace(strings.Join(t, " "))
	}
	return FolderKind + " " + d.Folder.Path
}

// Host is what of the address of a webhook may be shown: its scheme and host, without the path and query, which may
// be secrets.
func (w *WebhookTarget) Host() string {
	scheme, rest, _ := strings.Cut(w.URL, "://")
	host, _, _ := strings.Cut(rest, "/")
	host, _, _ = strings.Cut(host, "?")
	return scheme + "://" + host
}

// Label is Target for people: of a webhook it has the host alone, because the rest of an address may be a secret.
func (d *Delivery) Label() string {
	switch {
	case d.Webhook != nil:
		return WebhookKind + " " + d.Webhook.Host()
	case d.S3 != nil:
		return S3Kind + " " + d.S3.Endpoint + "/" + d.S3.Bucket
	}
	return FolderKind + " " + d.Folder.Path
}

// Place is where at the target names begin: a folder, or a bucket with a slash behind it. It is "" of a webhook.
func (d *Delivery) Place() string {
	switch {
	case d.Webhook != nil:
		return ""
	case d.S3 != nil:
		return d.S3.Endpoint + "/" + d.S3.Bucket + "/"
	}
	return d.Folder.Path
}

// key returns the original name at the target.
func (d *Delivery) key() string {
	if d.S3 != nil {
		return d.S3.Key
	}
	return d.Folder.Key
}

// collides reports whether two deliveries write to the same file or object.
func (d *Delivery) collides(other *Delivery) bool {
	return d.Webhook == nil && other.Webhook == nil && d.Place() == other.Place() && d.key() == other.key()
}

// defaultKey returns the name at the target if the job sets none.
func (d *Delivery) defaultKey() string {
	switch d.Send {
	case SendLog:
		return "${id}.log"
	case SendArtifacts:
		return "${id}/" + ArtifactReference
	case SendResult, SendRecord:
	}
	return "${id}.json"
}

// Name returns the destination of an operation at the target: a file name below the folder or an object name
// in the bucket, with slashes, or an address. For artifacts it is the common part of their names, with
// ${artifact}. The error explains why there is none: the parameters or the result lead outside of the target,
// or the result lacks a member that the key uses.
func (d *Delivery) Name(v Values) (string, error) {
	if d.Webhook == nil {
		name, err := expandKey(d.key(), v)
		if err != nil {
			return "", err
		}
		return name, checkDeliveredName(name)
	}
	var b strings.Builder
	for p := range pieces(d.Webhook.URL) {
		if p.ref == "" {
			b.WriteString(p.literal)
		} else {
			b.WriteString(strings.ReplaceAll(url.QueryEscape(v.reference(p.ref)), "+", "%20"))
		}
	}
	return b.String(), checkAddress(b.String())
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
		return fmt.Errorf("the key %q has characters that no name has", clip(name))
	case strings.Contains(name, `\`):
		return fmt.Errorf(`the key %q has a \`, clip(name))
	case strings.HasPrefix(name, "/"):
		return fmt.Errorf("the key %q starts with / and would lead outside the folder", clip(name))
	}
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "." || part == "..":
			return fmt.Errorf("the key %q has the part %q and would lead outside", clip(name), part)
		case part == "":
			return fmt.Errorf("the key %q has an empty part", clip(name))
		case len(part) > maxNamePart:
			return fmt.Errorf("the key has a part of more than %d bytes: %q", maxNamePart, clip(part))
		}
	}
	return nil
}

// checkAddress returns why a text is not the address of a webhook.
func checkAddress(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || strings.ContainsFunc(text, unicode.IsSpace):
		return errors.New("it is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("it does not begin with http:// or https://")
	case u.Hostname() == "":
		return errors.New("it has no host")
	case !possiblePort(u.Port()):
		return fmt.Errorf("the port %s is none", u.Port())
	case strings.Contains(text, "${"):
		return errors.New("of references it may have ${id} and ${params.NAME} alone")
	case u.User != nil:
		return errors.New("it has a user name or password")
	case u.Fragment != "":
		return errors.New("it has a fragment (#)")
	}
	for part := range strings.SplitSeq(u.Path, "/") {
		if part == "." || part == ".." {
			return fmt.Errorf("its path has the part %q and would lead elsewhere", part)
		}
	}
	return nil
}

// possiblePort reports whether a text is a port or empty.
func possiblePort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && port > 0
}
