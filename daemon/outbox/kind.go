package outbox

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

//go:generate go test -count=1 -run TestReference . -update

// Kinds are the kinds of targets that a job may name. A new kind is a file that declares one, and its name at the end.
var Kinds = []*Kind{folderKind, webhookKind, s3Kind}

// Kind describes a kind of target: what a job file says of one, and how to deliver to it.
type Kind struct {
	// Name is the key of such a target in deliver, and its kind in records and in the names of entries.
	Name string
	// Help describes the kind in the JSON Schema and in docs/outbox.md.
	Help string
	// Keys are the keys of a target, in the order of the documentation, without [SharedKeys]. Targets with a [NameKey]
	// accept content of any type and size: logs and artifacts too.
	Keys []Key
	// Target returns the target with these settings. It reads no file and connects to nothing.
	Target func(Settings, *Shared) Target
}

// Shared is what the targets of a daemon share: its settings and connections.
type Shared struct {
	storage   string
	allow     []netip.Prefix
	partBytes int64
	sender    *http.Client
	s3        *http.Transport
}

// NewShared returns what targets share. They may not be in the folder storage. Webhooks may connect to the addresses
// in allow in addition to the public ones. partBytes is the part size of uploads to buckets; 0 means
// [DefaultPartBytes].
func NewShared(storage string, allow []netip.Prefix, partBytes int64) *Shared {
	return &Shared{storage, allow, partBytes, NewSender(allow), NewS3Transport()}
}

// Close closes idle connections.
func (s *Shared) Close() {
	s.sender.CloseIdleConnections()
	s.s3.CloseIdleConnections()
}

// AllKeys returns the keys of a target of this kind, in the order of the documentation.
func (k *Kind) AllKeys() []Key {
	shared := slices.Clone(SharedKeys)
	if !slices.ContainsFunc(k.Keys, func(key Key) bool { return key.Type == NameKey }) {
		shared[0].Words = shared[0].Words[:2] // of send: the result and the record, which every kind can deliver
	}
	return append(slices.Clip(k.Keys), shared...)
}

// Destination returns the target of an entry as [Outbox.Add] groups entries by it. The sources of its secrets are part
// of it: while a secret cannot be read, nothing that needs it can be delivered.
func (k *Kind) Destination(s Settings) Destination {
	at := k.Target(s, new(Shared)).Place()
	parts := []string{k.Name + " " + cmp.Or(at.Key, at.Label)}
	for _, key := range k.Keys {
		if key.Type == SecretFileKey || key.Type == SecretEnvKey {
			parts = append(parts, s.Text(key.Name))
		}
		if key.Type == MappingKey && key.Values != TextKey {
			for _, pair := range s.Pairs(key.Name) {
				parts = append(parts, pair.Value)
			}
		}
	}
	return Destination{Key: strings.TrimSpace(strings.Join(parts, " ")), Label: k.Name + " " + at.Label}
}
