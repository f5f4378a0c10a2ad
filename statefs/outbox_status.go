package statefs

import "time"

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
