package statefs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobdir/jobdir/statefs/steps"
)

// LaneStatus is the status of a lane. Only the daemon knows all of it; no file holds it.
type LaneStatus struct {
	Name string `json:"name"`
	// Known is false for a lane that is not in the configuration although operations wait or run in
	// it.
	Known bool `json:"known"`
	// Capacity is how many operations may run at once, and Configured the configured number; nil is
	// unlimited.
	Capacity   *int `json:"capacity"`
	Configured *int `json:"configured"`
	// Running counts the operations that hold a place, including those paused with a process.
	// Waiting counts the operations that wait for a place, the first of them since Oldest.
	Running int        `json:"running"`
	Waiting int        `json:"waiting"`
	Oldest  *time.Time `json:"oldest,omitempty"`
	// MaxStarts limits how often an operation starts, such as 30/1m, and Gap is the least time
	// between two starts. NextStart is when both allow the next start.
	MaxStarts string     `json:"max_starts,omitempty"`
	Gap       string     `json:"gap,omitempty"`
	NextStart *time.Time `json:"next_start,omitempty"`
	// Paused is why the lane starts nothing and Closed why it accepts nothing; nil if it does.
	// PausedByAll and ClosedByAll mean that this applies to every lane.
	Paused      *LaneHold `json:"paused,omitempty"`
	PausedByAll bool      `json:"paused_by_all,omitempty"`
	Closed      *LaneHold `json:"closed,omitempty"`
	ClosedByAll bool      `json:"closed_by_all,omitempty"`
	// Breaker is nil for a lane without a breaker.
	Breaker  *BreakerStatus `json:"breaker,omitempty"`
	Problems []LaneProblem  `json:"problems,omitempty"`
}

// BreakerStatus is the status of a lane's breaker.
type BreakerStatus struct {
	// State is closed, open (nothing starts) or trial (one operation starts, and its outcome
	// decides).
	State string `json:"state"`
	// Failures is how many failures count at the moment.
	Failures int `json:"failures"`
	// Until is when one operation may start, and Trial is that operation.
	Until *time.Time `json:"until,omitempty"`
	Trial ID         `json:"trial,omitzero"`
}

// LaneProblem is a file of lanes/ that does not have the effect its name suggests.
type LaneProblem struct {
	File   string `json:"file"` // such as lanes/cookie.capacity
	Reason string `json:"reason"`
}

// LimitStatus is the status of a limit.
type LimitStatus struct {
	Name     string `json:"name"`
	Known    bool   `json:"known"` // false: not in the configuration
	Capacity *int   `json:"capacity"`
	Running  int    `json:"running"`
}

// LanesStatus is the status of all lanes and limits.
type LanesStatus struct {
	Lanes  []LaneStatus  `json:"lanes"`
	Limits []LimitStatus `json:"limits"`
	// Paused and Closed are the holds of every lane; nil if there is none.
	Paused *LaneHold `json:"paused,omitempty"`
	Closed *LaneHold `json:"closed,omitempty"`
	// Problems are problem files that belong to no lane.
	Problems []LaneProblem `json:"problems,omitempty"`
}

// Lane returns the status of one lane, nil if there is none.
func (s *LanesStatus) Lane(name string) *LaneStatus {
	return steps.First(s.Lanes, func(l *LaneStatus) bool { return l.Name == name })
}

// LaneCapacityOf converts a capacity to its form in a status: nil is unlimited.
func LaneCapacityOf(n int) *int {
	if n < 0 {
		return nil
	}
	return &n
}

// WaitReason is why a live operation does not run.
type WaitReason string

// The reasons.
const (
	WaitsToStart       WaitReason = "starting"      // nothing prevents it: it is about to start
	WaitsForLane       WaitReason = "lane_full"     // its lane is full
	WaitsPausedLane    WaitReason = "lane_paused"   // its lane is paused
	WaitsForRate       WaitReason = "rate"          // the rate limit of its lane allows the next start later
	WaitsForLimit      WaitReason = "limit"         // a limit is exhausted
	WaitsForKey        WaitReason = "key"           // another operation holds its key, or is before it
	WaitsForOthers     WaitReason = "after"         // operations that it waits for have not ended
	WaitsForTime       WaitReason = "not_before"    // its time has not come
	WaitsUnknownLane   WaitReason = "unknown_lane"  // the daemon has no such lane
	WaitsUnknownLimit  WaitReason = "unknown_limit" // the daemon has no such limit
	WaitsForResources  WaitReason = "resources"     // the daemon has too few free descriptors
	WaitsForNextDaemon WaitReason = "draining"      // the daemon starts nothing any more
)

// Waiting explains why a live operation does not run. Only the daemon knows it; no file holds it.
type Waiting struct {
	Reason WaitReason `json:"reason"`
	// HeldBy is the operation that holds what this one waits for, if there is one.
	HeldBy ID `json:"held_by,omitzero"`
	// NeedsPerson is an operation that waits for a person and on which this one depends, directly
	// or through others.
	NeedsPerson ID `json:"needs_person,omitzero"`
	// Lane is its lane; Limit is the exhausted limit and Key its key, if that is the reason.
	Lane  string `json:"lane,omitempty"`
	Limit string `json:"limit,omitempty"`
	Key   string `json:"key,omitempty"`
	// Position is its position in the queue of its lane, from 1; 0 if it has none.
	Position int `json:"position,omitempty"`
	// Since is when it began to wait, for this or another reason.
	Since *time.Time `json:"since,omitempty"`
	// Note is the reason given when its lane was paused.
	Note string `json:"note,omitempty"`
	// Until is when the wait ends by time alone.
	Until *time.Time `json:"until,omitempty"`
}

// Sentence returns the reason as text for a person.
func (w *Waiting) Sentence() string {
	text := w.reason()
	if w.HeldBy != (ID{}) && w.Reason != WaitsForOthers {
		text += fmt.Sprintf(", held by %s", w.HeldBy)
	}
	if p := w.NeedsPerson; !p.IsZero() {
		if p != w.HeldBy {
			text += fmt.Sprintf(", and operation %s waits for a person", p)
		}
		text += fmt.Sprintf("; 'jobdir show %s' says why, 'jobdir retry %s' goes on with it, 'jobdir cancel %s' ends it", p,
			p, p)
	}
	if w.Until != nil && w.Reason != WaitsForTime {
		text += ", until " + w.Until.Local().Format("2006-01-02 15:04:05")
	}
	if w.Note != "" {
		text += fmt.Sprintf(" (%s)", w.Note)
	}
	return text
}

// waitSentences are the reasons as text for a person.
var waitSentences = map[WaitReason]string{
	WaitsToStart:       "it is about to start",
	WaitsForLane:       "lane {lane} is full",
	WaitsPausedLane:    "lane {lane} is paused",
	WaitsForRate:       "lane {lane} has started as many as its rate allows",
	WaitsForLimit:      "limit {limit} is reached",
	WaitsForKey:        "key {key} is taken",
	WaitsForOthers:     "operation {held_by} has not ended",
	WaitsForTime:       "its time has not come",
	WaitsUnknownLane:   "the daemon has no lane {lane}; add it to its configuration",
	WaitsUnknownLimit:  "the daemon has no limit {limit}; add it to its configuration",
	WaitsForResources:  "the daemon may open too few files more (ulimit -n)",
	WaitsForNextDaemon: "the daemon is stopping and starts nothing new",
}

func (w *Waiting) reason() string {
	switch {
	case w.Reason == WaitsForOthers && !w.NeedsPerson.IsZero() && w.NeedsPerson == w.HeldBy:
		return fmt.Sprintf("operation %s waits for a person", w.HeldBy)
	case w.Reason == WaitsForTime && w.Until != nil:
		return "it is to start at " + w.Until.Local().Format("2006-01-02 15:04:05")
	}
	return strings.NewReplacer("{lane}", strconv.Quote(w.Lane), "{limit}", strconv.Quote(w.Limit),
		"{key}", strconv.Quote(w.Key), "{held_by}", w.HeldBy.String(),
	).Replace(cmp.Or(waitSentences[w.Reason], waitSentences[WaitsToStart]))
}

// Attention describes why an operation, or an optional step of it, waits for a person, and what the
// person can do.
type Attention struct {
	// Step is the current step and Number its position among the Total steps, from 1; "" and 0 for
	// a job without steps.
	Step   string `json:"step,omitempty"`
	Number int    `json:"number,omitempty"`
	Total  int    `json:"total,omitempty"`
	// Optional is true for an optional step; the operation does not wait for it.
	Optional bool `json:"optional,omitempty"`
	// Approval means that the step waits for an approval; otherwise the step or the operation has
	// failed.
	Approval bool `json:"approval,omitempty"`
	// ErrorCode and Message give the reason.
	ErrorCode string `json:"error_code,omitempty"`
	Message   string `json:"message"`
	// Commands are the commands that help, the usual one first. Words in capitals are placeholders.
	Commands []string `json:"commands"`
}

// NeedsPerson reports whether an operation in this state waits for a person.
func (s State) NeedsPerson() bool { return s == FailedManual || s == WaitingApproval }

// AttentionOf returns why an operation, or an optional step of it, waits for a person, or nil if
// none does. rec may be nil if the record cannot be read.
func AttentionOf(id ID, state State, rec *Record) *Attention {
	if !state.NeedsPerson() {
		if rec == nil || !state.Live() {
			return nil
		}
		return optionalAttention(id, rec)
	}
	a := &Attention{Approval: state == WaitingApproval}
	if rec != nil {
		a.explain(rec)
	}
	a.Message = cmp.Or(a.Message, string(state))
	name := id.String()
	if a.Approval {
		a.Commands = []string{"jobdir approve " + name, "jobdir reject " + name + " --reason TEXT"}
		return a
	}
	if rec != nil && rec.Lost() {
		a.Commands = []string{"jobdir cancel " + name}
		return a
	}
	a.Commands = []string{"jobdir retry " + name}
	if a.Step != "" {
		a.Commands = append(a.Commands, "jobdir skip "+name+" --reason TEXT", "jobdir set "+name+" NAME=VALUE")
	}
	a.Commands = append(a.Commands, "jobdir cancel "+name)
	return a
}

func (a *Attention) explain(rec *Record) {
	var step steps.Step
	if at := rec.CurrentStep(); at != nil {
		step = *at
		a.setStep(rec, at.Name)
	}
	if a.Approval {
		a.Message = "an approval is needed"
		return
	}
	a.ErrorCode, a.Message = step.ErrorCode, step.ErrorMessage
	if rec.Error != nil {
		a.ErrorCode, a.Message = cmp.Or(a.ErrorCode, rec.Error.Code), cmp.Or(a.Message, rec.Error.Message)
	}
	a.Message = cmp.Or(a.Message, rec.Reason)
}

// optionalAttention returns the attention for the first failed optional step, nil if none has
// failed.
func optionalAttention(id ID, rec *Record) *Attention {
	step := rec.FailedOptionalStep()
	if step == nil {
		return nil
	}
	a := &Attention{Optional: true, ErrorCode: step.ErrorCode, Message: cmp.Or(step.ErrorMessage, string(step.Status))}
	a.setStep(rec, step.Name)
	of := id.String() + " --step " + step.Name
	a.Commands = []string{
		"jobdir retry " + of, "jobdir skip " + of + " --reason TEXT",
		"jobdir set " + id.String() + " NAME=VALUE",
	}
	return a
}

// setStep sets the step of the attention to a step of the record.
func (a *Attention) setStep(rec *Record, name string) {
	a.Step, a.Total = name, len(rec.Steps)
	a.Number = 1 + slices.IndexFunc(rec.Steps, func(s steps.Step) bool { return s.Name == name })
}

// Place describes the current step, such as "step 3 / 8 split"; "" for a job without steps.
func (a *Attention) Place() string {
	if a.Step == "" {
		return ""
	}
	return fmt.Sprintf("step %d / %d %s", a.Number, a.Total, a.Step)
}

// Sentence returns the attention as text for a person, with the commands that help. It continues
// "operation ID" and begins with a verb.
func (a *Attention) Sentence(id ID) string {
	if a.Approval {
		of := ""
		if a.Step != "" {
			of = " of " + a.Place()
		}
		return fmt.Sprintf("waits for an approval%s: 'jobdir approve %s' lets it go on, 'jobdir reject %s' ends it", of, id,
			id)
	}
	if a.ErrorCode == CodeRecordLost {
		return fmt.Sprintf("waits for a person: %s: submit it again, and 'jobdir cancel %s' ends this one", a.Message, id)
	}
	if a.Step == "" {
		return fmt.Sprintf("waits for a person: %s; when that is mended, 'jobdir retry %s' goes on, 'jobdir cancel %s' ends it", a.Message, id, id)
	}
	return fmt.Sprintf("waits for a person at %s: %s; when that is mended, 'jobdir retry %s' goes on, 'jobdir skip %s --reason TEXT' goes on without that step, 'jobdir cancel %s' ends it",
		a.Place(), a.Message, id, id, id)
}

// OutboxStatus is the status of the outbox; only the daemon knows it.
type OutboxStatus struct {
	// Pending is the number of entries that are retried until delivered, FailedManual of entries
	// that wait for a person.
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

// OptionalTime returns a pointer to a time, nil for the zero time: so an answer lacks what has not happened.
func OptionalTime(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}
