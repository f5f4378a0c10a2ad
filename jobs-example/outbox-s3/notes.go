package main

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// reason is why an entry is not stored.
type reason int

const (
	incomplete reason = iota // it has no prediction
	missing                  // the outbox has no document
	refused                  // something about it is wrong
	claimed                  // another worker is at it
)

// note is the message that was logged about an entry that is not stored.
type note struct {
	id   bson.RawValue
	why  reason
	text string
	seen int       // the look that found it so last
	hold time.Time // until when it is left alone
}

// notes are the messages about entries that could not be stored, so that each is logged once, and again only
// when it changes. It covers the latest pass through the source: stored and removed entries are dropped.
type notes struct {
	of   map[string]note
	look int
}

// add notes an entry and reports whether that is news.
func (n *notes) add(id bson.RawValue, why reason, text string, hold time.Time) (news bool) {
	if n.of == nil {
		n.of = map[string]note{}
	}
	k := key(id)
	old, known := n.of[k]
	n.of[k] = note{id, why, text, n.look, hold}
	return !known || old.why != why || old.text != text
}

func (n *notes) forget(id bson.RawValue) { delete(n.of, key(id)) }

// held reports whether the time has not come at which an entry is tried again.
func (n *notes) held(id bson.RawValue, now time.Time) bool {
	k := key(id)
	old, known := n.of[k]
	if !known || !now.Before(old.hold) {
		return false
	}
	old.seen = n.look
	n.of[k] = old
	return true
}

// begin begins a look through the whole source.
func (n *notes) begin() { n.look++ }

// ended forgets what the look, which went through the whole source, did not find.
func (n *notes) ended() {
	for k, old := range n.of {
		if old.seen != n.look {
			delete(n.of, k)
		}
	}
}

func (n *notes) ids() []bson.RawValue {
	ids := make([]bson.RawValue, 0, len(n.of))
	for _, old := range n.of {
		ids = append(ids, old.id)
	}
	return ids
}

// awaits reports whether another worker is at an entry, which may fail.
func (n *notes) awaits() bool {
	for _, old := range n.of {
		if old.why == claimed {
			return true
		}
	}
	return false
}

func (n *notes) count() left {
	var l left
	for _, old := range n.of {
		switch old.why {
		case incomplete:
			l.Incomplete++
		case missing:
			l.Missing++
		case refused:
			l.Refused++
		case claimed: // the other worker reports it
		}
	}
	return l
}
