package statefs

import (
	"errors"
	"io/fs"
	"time"
)

// OutboxStatus is how the outbox is, as only the daemon knows it.
type OutboxStatus struct {
	// Pending is how many entries are tried until they are delivered, FailedManual how many wait for a person.
	Pending      int `json:"pending"`
	FailedManual int `json:"failed_manual"`
	// OldestAt is when the oldest pending one was made, nil when there is none.
	OldestAt *time.Time `json:"oldest_at,omitempty"`
	// Targets are those of pending entries.
	Targets []OutboxTarget `json:"targets"`
	// Kinds count since the daemon started, by the kind of the target.
	Kinds map[string]DeliveryCounts `json:"kinds"`
}

// OutboxTarget is how a target of deliveries is.
type OutboxTarget struct {
	// Name is for people: the kind and the place, without what may be a secret.
	Name    string `json:"name"`
	Pending int    `json:"pending"`
	// Down says that the last try there failed; Since is when that began, NextTryAt when it is tried again, Error why.
	Down      bool       `json:"down"`
	Since     *time.Time `json:"since,omitempty"`
	NextTryAt *time.Time `json:"next_try_at,omitempty"`
	Error     string     `json:"error,omitempty"`
	OldestAt  *time.Time `json:"oldest_at,omitempty"`
}

// DeliveryCounts count tries by how they ended, and what was delivered in bytes.
type DeliveryCounts struct {
	Delivered uint64 `json:"delivered"`
	// Failed are tries after which the target is down; Deferred those that something on our side kept from being made, Refused those that gave the
	// entry to a person.
	Failed   uint64 `json:"failed"`
	Deferred uint64 `json:"deferred"`
	Refused  uint64 `json:"refused"`
	Dropped  uint64 `json:"dropped"`
	Bytes    uint64 `json:"bytes"`
}

// OutboxLine is what a daemon knows of an entry without reading it.
type OutboxLine struct {
	Name      EntryName
	Status    DeliveryStatus // pending or failed_manual
	CreatedAt time.Time
	// TargetName is what its target is called, and Target how that is, nil of one that waits for a person. NextTryAt is when it is tried again, nil for at once or never.
	TargetName string
	Target     *OutboxTarget
	NextTryAt  *time.Time
}

// OutboxQuery chooses entries; the zero value is all, and none of them is listed.
type OutboxQuery struct {
	// Statuses are pending and failed_manual; none is both.
	Statuses []DeliveryStatus
	// Kinds are those of targets, and Target a part of the target's name.
	Kinds  []string
	Target string
	// Of reports whether an operation is wanted; nil: each is. It must be quick.
	Of func(ID) bool
	// Before leaves those that were made before it; the zero time leaves all.
	Before time.Time
	// AfterAt and AfterName are where the page before ended.
	AfterAt   time.Time
	AfterName EntryName
	// Limit is how many are listed.
	Limit int
}

// OutboxItem is an entry of the outbox as people are shown it.
type OutboxItem struct {
	// Entry is its name, by which it is retried and dropped.
	Entry string `json:"entry"`
	ID    ID     `json:"id"`
	Group string `json:"group,omitempty"`
	Job   string `json:"job,omitempty"`
	// Place is the place of the target in the job's list, Kind what it is, and At what it is called, which only a daemon knows.
	Place int    `json:"target"`
	Kind  string `json:"kind"`
	At    string `json:"at,omitempty"`
	Send  string `json:"send,omitempty"`
	// Name is where at the target it goes.
	Name   string         `json:"name,omitempty"`
	Status DeliveryStatus `json:"status"`
	// Error says why it waits for a person, or why it cannot be read.
	Error     string     `json:"error,omitempty"`
	Attempts  int        `json:"attempts"`
	CreatedAt time.Time  `json:"created_at"`
	LastAt    *time.Time `json:"last_attempt_at,omitempty"`
	LastError string     `json:"last_error,omitempty"`
	Until     *time.Time `json:"retry_until,omitempty"`
	// NextTryAt is when it is tried again, nil for at once or never; TargetDown says that its target is down.
	NextTryAt  *time.Time `json:"next_try_at,omitempty"`
	TargetDown bool       `json:"target_down"`
}

// ShowEntry reads an entry and its record. What cannot be read is left out, and Error says why. The error wraps fs.ErrNotExist when there is no entry.
func (t *Tree) ShowEntry(name EntryName) (OutboxItem, error) {
	item := OutboxItem{Entry: name.String(), ID: name.ID, Place: name.Place, Kind: name.Kind, Status: DeliveryPending}
	entry, manual, err := t.ReadEntry(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return item, err
	case err != nil:
		item.Error = err.Error()
		_, manual, _ = t.HasEntry(name)
	default:
		item.Attempts, item.CreatedAt, item.LastAt, item.LastError, item.Until = entry.Attempts, entry.CreatedAt, entry.LastAt, entry.LastError, entry.Until
	}
	if manual {
		item.Status, item.Until = DeliveryManual, nil
	}
	rec, err := t.ReadRecord(name.ID)
	if err != nil {
		item.Error = err.Error()
		return item, nil //nolint:nilerr // it says so itself
	}
	item.Group, item.Job = rec.Group, rec.Job
	if item.CreatedAt.IsZero() && rec.FinishedAt != nil {
		item.CreatedAt = *rec.FinishedAt
	}
	if it := rec.Delivery(name.Place); it != nil {
		item.Send, item.Name = it.Send, it.Name
		if it.Error != "" {
			item.Error = it.Error
		}
	}
	return item, nil
}
