package statefs

import (
	"errors"
	"io/fs"
	"time"
)

// OutboxStatus is the status of the outbox; only the daemon knows it.
type OutboxStatus struct {
	// Pending is the number of entries that are retried until delivered, FailedManual of those that
	// wait for a person.
	Pending      int `json:"pending"`
	FailedManual int `json:"failed_manual"`
	// OldestAt is when the oldest pending entry was created, nil if there is none.
	OldestAt *time.Time `json:"oldest_at,omitempty"`
	// Targets are the targets of pending entries.
	Targets []OutboxTarget `json:"targets"`
	// Kinds counts attempts since the daemon started, by kind of target.
	Kinds map[string]DeliveryCounts `json:"kinds"`
}

// OutboxTarget is the status of a delivery target.
type OutboxTarget struct {
	// Name is for people: the kind and the destination, without possible secrets.
	Name    string `json:"name"`
	Pending int    `json:"pending"`
	// Down means that the last attempt failed; Since is when that began, NextTryAt the next
	// attempt, Error the reason.
	Down      bool       `json:"down"`
	Since     *time.Time `json:"since,omitempty"`
	NextTryAt *time.Time `json:"next_try_at,omitempty"`
	Error     string     `json:"error,omitempty"`
	OldestAt  *time.Time `json:"oldest_at,omitempty"`
}

// DeliveryCounts counts attempts by outcome, and the bytes delivered.
type DeliveryCounts struct {
	Delivered uint64 `json:"delivered"`
	// Failed counts attempts after which the target is down, Deferred attempts that a local problem
	// prevented, Refused attempts after which the entry waits for a person.
	Failed   uint64 `json:"failed"`
	Deferred uint64 `json:"deferred"`
	Refused  uint64 `json:"refused"`
	Dropped  uint64 `json:"dropped"`
	Bytes    uint64 `json:"bytes"`
}

// OutboxLine is what the daemon knows about an entry without reading it.
type OutboxLine struct {
	Name      EntryName
	Status    DeliveryStatus // pending or failed_manual
	CreatedAt time.Time
	// TargetName is the name of its target and Target the target's status, nil for an entry that
	// waits for a person. NextTryAt is the next attempt, nil for at once or never.
	TargetName string
	Target     *OutboxTarget
	NextTryAt  *time.Time
}

// OutboxQuery selects entries. The zero value selects all but lists none, because Limit is 0.
type OutboxQuery struct {
	// Statuses are pending and failed_manual; empty is both.
	Statuses []DeliveryStatus
	// Kinds are the kinds of targets, and Target a part of the target's name.
	Kinds  []string
	Target string
	// Of reports whether to include an operation; nil includes all. It must be quick.
	Of func(ID) bool
	// Before selects the entries created before it; the zero time selects all.
	Before time.Time
	// AfterAt and AfterName are the last entry of the previous page.
	AfterAt   time.Time
	AfterName EntryName
	// Limit is how many entries are listed.
	Limit int
}

// OutboxItem is an entry of the outbox, for display.
type OutboxItem struct {
	// Entry is its name, for retry and drop requests.
	Entry string `json:"entry"`
	ID    ID     `json:"id"`
	Group string `json:"group,omitempty"`
	Job   string `json:"job,omitempty"`
	// Place is the position of the target in the job's list, Kind its kind, and At its name, which
	// only a daemon knows.
	Place int    `json:"target"`
	Kind  string `json:"kind"`
	At    string `json:"at,omitempty"`
	Send  string `json:"send,omitempty"`
	// Name is the destination at the target.
	Name   string         `json:"name,omitempty"`
	Status DeliveryStatus `json:"status"`
	// Error is why it waits for a person, or why it cannot be read.
	Error     string     `json:"error,omitempty"`
	Attempts  int        `json:"attempts"`
	CreatedAt time.Time  `json:"created_at"`
	LastAt    *time.Time `json:"last_attempt_at,omitempty"`
	LastError string     `json:"last_error,omitempty"`
	Until     *time.Time `json:"retry_until,omitempty"`
	// NextTryAt is the next attempt, nil for at once or never; TargetDown is true while the target
	// is down.
	NextTryAt  *time.Time `json:"next_try_at,omitempty"`
	TargetDown bool       `json:"target_down"`
}

// ShowEntry reads an entry and its record. Unreadable parts are left out, with the reason in Error.
// The error wraps fs.ErrNotExist if there is no entry.
func (t *Tree) ShowEntry(name EntryName) (OutboxItem, error) {
	item := OutboxItem{Entry: name.String(), ID: name.ID, Place: name.Place, Kind: name.Kind, Status: DeliveryPending}
	entry, manual, err := t.Outbox.Read(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return item, err
	case err != nil:
		item.Error = err.Error()
		_, manual, _ = t.Outbox.Has(name)
	default:
		item.Attempts, item.CreatedAt, item.LastAt, item.LastError, item.Until = entry.Attempts, entry.CreatedAt,
			entry.LastAt, entry.LastError, entry.Until
	}
	if manual {
		item.Status, item.Until = DeliveryManual, nil
	}
	rec, err := t.ReadRecord(name.ID)
	if err != nil {
		item.Error = err.Error()
		return item, nil //nolint:nilerr // item.Error reports it
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
