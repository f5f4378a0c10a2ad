package catalog

import (
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

var (
	deliverKeys = keySet{owner: "a target of deliver", known: []string{FolderKind, WebhookKind, S3Kind}}
	folderKeys  = keySet{owner: "folder", known: []string{"path", "key", "send", "on", "retry_for"}}
	webhookKeys = keySet{owner: "webhook", known: []string{
		"url", "method", "headers", "headers_file", "headers_env", "secret_file", "secret_env", "timeout",
		"send", "on", "retry_for",
	}}
)

// Bounds of deliver.
const (
	maxTargets        = 16
	maxWebhookTimeout = time.Hour
	maxHeaders        = 32
)

// SecretPrefix begins the names of environment variables that may hold secrets: those are never given to commands.
const SecretPrefix = "JOBDIR_SECRET_"

var (
	// fixedAddress is what a URL has before anything that depends on the operation: the host is nothing that a
	// parameter chooses.
	fixedAddress = regexp.MustCompile(`^https?://[^/?#$]+/`)
	headerName   = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$")
	headerText   = regexp.MustCompile(`^[\t\x20-\x7e]{0,1000}$`)
	secretEnv    = regexp.MustCompile(`^` + SecretPrefix + `[A-Z0-9_]{1,100}$`)
)

// ownHeaders are headers that every request has anyway.
var ownHeaders = []string{
	"Content-Length", "Content-Type", "Host", "Transfer-Encoding", "Connection", "Webhook-Id", "Webhook-Timestamp",
	"Webhook-Signature",
}

// deliver decodes the targets of a job.
func (j *jobDecoder) deliver(n *node) {
	elements := j.list(n, "deliver")
	if len(elements) > maxTargets {
		j.fail(n, "", "deliver has more than %d targets", maxTargets)
	}
	for _, e := range elements {
		d := &Delivery{Send: SendResult, On: OnCompleted, at: j.position(e)}
		if !j.mapping(e, deliverKeys, func(key string, k, n *node) {
			switch {
			case d.Kind() != FolderKind || d.Folder != nil:
				j.fail(k, "start another element of the list with -", "a target of deliver is one thing, not two")
			case key == FolderKind:
				d.Folder = &FolderTarget{}
				j.folder(d, n)
			case key == WebhookKind:
				d.Webhook = &WebhookTarget{Method: http.MethodPost, Timeout: DefaultWebhookTimeout}
				j.webhook(d, n)
			case key == S3Kind:
				d.S3 = &S3Target{Region: DefaultS3Region, Timeout: DefaultS3Timeout}
				j.s3(d, n)
			}
		}) {
			continue
		}
		if len(e.entries) == 0 {
			j.fail(e, "write folder: {...}, webhook: {...} or s3: {...}", "a target of deliver is empty")
		}
		if d.Folder == nil && d.Webhook == nil && d.S3 == nil {
			continue
		}
		if first := slices.IndexFunc(j.def.Deliver, d.collides); first >= 0 {
			j.fail(e, "give one of them another key",
				"targets %d and %d have the same key at the same place: each would replace what the other delivered", first+1,
				len(j.def.Deliver)+1)
		}
		j.def.Deliver = append(j.def.Deliver, d)
	}
}

// shipping decodes the keys that all targets have.
func (j *jobDecoder) shipping(d *Delivery, key string, n *node, sends ...string) {
	switch key {
	case "send":
		s, _ := j.word(n, key, sends)
		d.Send = Send(s)
	case "on":
		s, _ := j.word(n, key, []string{string(OnCompleted), string(OnEnded)})
		d.On = DeliverOn(s)
	case "retry_for":
		d.RetryFor = j.duration(n, key, maxTimeout, "leave the key out to try for ever")
	}
}

func (j *jobDecoder) folder(d *Delivery, n *node) {
	f := d.Folder
	var key *node
	if !j.mapping(n, folderKeys, func(name string, _, n *node) {
		switch name {
		case "path":
			if s, ok := j.text(n, name); ok {
				f.Path = s
				if !filepath.IsAbs(s) {
					j.fail(n, "write it from the root, such as /srv/results", "path cannot be %q", clip(s))
				}
				j.unreferenced(n, "path", "no parameter may choose the folder; put it into key")
			}
		case "key":
			if s, ok := j.text(n, name); ok {
				f.Key, key = s, n
			}
		default:
			j.shipping(d, name, n, string(SendResult), string(SendRecord), string(SendLog), string(SendArtifacts))
		}
	}) {
		return
	}
	if f.Path == "" {
		j.fail(n, "write {path: /FOLDER, key: ...}", "folder has no path")
	}
	if key == nil {
		f.Key = d.defaultKey()
	}
	j.deliveredKey(d, key)
}

// deliveredKey checks a name that depends on the operation; nil when the job leaves it out.
func (j *jobDecoder) deliveredKey(d *Delivery, n *node) {
	if n == nil {
		return
	}
	j.uses = append(j.uses, use{at: n, text: n.text, filled: true})
	depends := resultReference.MatchString(n.text)
	var sample strings.Builder
	for p := range pieces(resultReference.ReplaceAllString(n.text, "x")) {
		sample.WriteString(p.literal)
		if p.ref != "" {
			depends = true
			sample.WriteByte('x')
		}
	}
	if strings.Contains(strings.ReplaceAll(sample.String(), ArtifactReference, ""), "${") {
		j.fail(n, "${id}, ${params.NAME}, ${result.NAME} and, with send: artifacts, ${artifact} are known here",
			"key has an unknown reference: %q", clip(n.text))
	}
	if !depends {
		j.fail(n, "put ${id} in it", "key is the same for every operation: each would replace what the one before delivered")
	}
	switch named := strings.Contains(n.text, ArtifactReference); {
	case named && d.Send != SendArtifacts:
		j.fail(n, "it is the name of an artifact, with send: artifacts", "${artifact} cannot be used here")
	case !named && d.Send == SendArtifacts:
		j.fail(n, "put ${artifact} in it", "key is the same for every artifact: each would replace the one before")
	}
	if err := checkDeliveredName(sample.String()); err != nil {
		j.fail(n, "it is a name at the target, such as results/${id}.json", "%s", err)
	}
}

// unreferenced refuses references where they mean nothing.
func (j *jobDecoder) unreferenced(n *node, what, hint string) {
	for p := range pieces(n.text) {
		if p.ref != "" {
			j.fail(n, hint, "%s cannot have ${%s}", what, clip(p.ref))
			return
		}
	}
}

func (j *jobDecoder) webhook(d *Delivery, n *node) {
	w := d.Webhook
	var secret *node
	if !j.mapping(n, webhookKeys, func(key string, k, n *node) {
		switch key {
		case "url":
			j.webhookURL(w, n)
		case "method":
			w.Method, _ = j.word(n, key, []string{http.MethodPost, http.MethodPut, http.MethodPatch})
		case "headers":
			j.headers(w, n)
		case "headers_file", "headers_env":
			j.secretHeaders(w, key, n)
		case "secret_file":
			w.SecretFile, _ = j.text(n, key)
			if n.kind == textKind && !filepath.IsAbs(w.SecretFile) {
				j.fail(n, "write it from the root, such as /etc/jobdir/hook.key", "secret_file cannot be %q", clip(w.SecretFile))
			}
			j.unreferenced(n, key, "a secret comes from no parameter")
			j.onlySecret(&secret, k)
		case "secret_env":
			w.SecretEnv, _ = j.text(n, key)
			if n.kind == textKind && !secretEnv.MatchString(w.SecretEnv) {
				j.fail(n, "it is a name that begins with "+SecretPrefix+", which no command gets",
					"secret_env cannot be %q", clip(w.SecretEnv))
			}
			j.onlySecret(&secret, k)
		case "timeout":
			w.Timeout = j.duration(n, key, maxWebhookTimeout, "leave the key out for 30s")
		default:
			j.shipping(d, key, n, string(SendResult), string(SendRecord))
		}
	}) {
		return
	}
	if w.URL == "" {
		j.fail(n, "write {url: https://...}", "webhook has no url")
	}
}

// onlySecret refuses a second secret.
func (j *jobDecoder) onlySecret(first **node, k *node) {
	if *first != nil {
		j.fail(k, "leave one of them out; a file may hold several secrets, one a line",
			"secret_file and secret_env exclude each other")
	}
	*first = k
}

func (j *jobDecoder) webhookURL(w *WebhookTarget, n *node) {
	s, ok := j.text(n, "url")
	if !ok {
		return
	}
	w.URL = s
	j.uses = append(j.uses, use{at: n, text: s, filled: true})
	var sample strings.Builder
	depends := false
	for p := range pieces(s) {
		sample.WriteString(p.literal)
		if p.ref != "" {
			sample.WriteByte('x')
			depends = true
		}
	}
	if err := checkAddress(sample.String()); err != nil {
		j.fail(n, "write https://HOST/PATH", "url cannot be used: %s", err) // it may have a password
		return
	}
	if depends && !fixedAddress.MatchString(s) {
		j.fail(n, "references belong into the path or the query", "url lets a parameter choose the host")
	}
}
