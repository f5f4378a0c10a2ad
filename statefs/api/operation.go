package api

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// Operation is an operation as the daemon shows it: its record and its current state. A client that decodes it sets
// Record before, since an operation may have no member of the record.
type Operation struct {
	// ID is outside of the record, as foreign operations have none.
	ID statefs.ID `json:"id"`
	// Record is nil for a foreign operation, and for one whose record is missing.
	*statefs.Record
	// Endpoint is GROUP-JOB, the beginning of the ID.
	Endpoint string `json:"endpoint"`
	// State is the state in the marker while the operation is live, and in the record when it has ended.
	State statefs.State `json:"state"`
	// Status is State, but completed instead of trailing. It replaces the status in the record, which may be older.
	Status statefs.State `json:"status"`
	// Foreign means that a program that the daemon did not start owns the operation.
	Foreign bool `json:"foreign,omitempty"`
	// Requests are the requests that the daemon has not taken yet, and a cancel until the work has ended.
	Requests []statefs.Action `json:"requests,omitempty"`
	// Steps replace the steps of the record: they have more fields.
	Steps []steps.View `json:"steps,omitempty"`
	// AllDone is set for an operation with steps that has its result: whether its optional steps have ended too.
	AllDone *bool `json:"all_done,omitempty"`
	// Attention is why the operation goes on only when a person acts, and which commands help.
	Attention *statefs.Attention `json:"attention,omitempty"`
	// Waiting is why the operation does not run, where only the queue knows.
	Waiting *statefs.Waiting `json:"waiting,omitempty"`
	// LogBytes is the current length of the log, or its sealed length.
	LogBytes int64 `json:"log_bytes"`
	// Durability is what the answer to a submit promises.
	Durability statefs.Durability `json:"durability,omitempty"`
	// Problem is why a record that should exist is missing.
	Problem string `json:"problem,omitempty"`
}

// Ended is an operation in the completion feed, and an ended one in lists. Its record has more fields.
type Ended struct {
	// FinishedSeq is the number of the end in the completion feed.
	FinishedSeq uint64     `json:"finished_seq"`
	ID          statefs.ID `json:"id"`
	Group       string     `json:"group"`
	Job         string     `json:"job"`
	Endpoint    string     `json:"endpoint"`
	Lane        string     `json:"lane,omitempty"`
	// Params is the JSON object of the parameters, left out when it is larger than what the index keeps.
	Params json.RawMessage `json:"params,omitempty"`
	Tags   []string        `json:"tags,omitempty"`
	Key    string          `json:"key,omitempty"`
	// RetryOf is the ended operation whose successful items this one inherited.
	RetryOf statefs.ID    `json:"retry_of,omitzero"`
	State   statefs.State `json:"state"`
	// Status is the same as State.
	Status statefs.State  `json:"status"`
	Result statefs.Result `json:"result,omitempty"`
	// NeedsPerson means that the operation has not ended: it is failed_manual, and a person must act.
	NeedsPerson bool           `json:"needs_person,omitempty"`
	Pinned      bool           `json:"pinned,omitempty"`
	Error       *statefs.Fault `json:"error,omitempty"`
	CreatedAt   time.Time      `json:"created_at"`
	StartedAt   *time.Time     `json:"started_at,omitempty"`
	FinishedAt  *time.Time     `json:"finished_at,omitempty"`
	UpdatedAt   time.Time      `json:"updated_at"`
	// Bytes is the size of the files of the operation.
	Bytes int64 `json:"bytes,omitempty"`
}

// NoFooter is the answer of format=json for an operation that has no footer yet.
type NoFooter struct {
	ID statefs.ID `json:"id"`
	// Result is always null.
	Result *string       `json:"result"`
	State  statefs.State `json:"state"`
	Reason string        `json:"reason,omitempty"`
	// Error is the error of the last attempt.
	Error   *statefs.Fault   `json:"error,omitempty"`
	Waiting *statefs.Waiting `json:"waiting,omitempty"`
	// Attention is why a person has to act, and which commands help.
	Attention *statefs.Attention `json:"attention,omitempty"`
	// Message is the same as a sentence for people.
	Message string `json:"message"`
}

// Step is the data of a step event in the stream of an operation.
type Step struct {
	ID     statefs.ID   `json:"id"`
	Step   string       `json:"step"`
	Status steps.Status `json:"status"`
	// Number is the place of the step among the Total steps of the operation, from 1.
	Number    int    `json:"number"`
	Total     int    `json:"total"`
	Run       int    `json:"run,omitempty"`
	Retries   int    `json:"retries,omitempty"`
	Optional  bool   `json:"optional,omitempty"`
	ErrorCode string `json:"error_code,omitempty"`
	Error     string `json:"error,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// Seconds is the duration of the step's last run; nil while it runs.
	Seconds *float64 `json:"duration_seconds,omitempty"`
}

// Submitted is the answer to one entry of a list of submits. The answer to a single submit, an Operation, has ID and
// State too.
type Submitted struct {
	ID    statefs.ID    `json:"id"`
	State statefs.State `json:"state"`
	// Code is the status that this submit alone would have had: 201, or 200 when the operation existed.
	Code int `json:"code"`
	// Created is false when the operation existed: an equal one is live, or the idempotency key names it.
	Created bool `json:"-"`
	// Raw is the JSON object that the daemon sent.
	Raw json.RawMessage `json:"-"`
}

// UnmarshalJSON implements json.Unmarshaler and keeps the whole object in Raw.
func (s *Submitted) UnmarshalJSON(data []byte) error {
	type plain Submitted
	s.Raw = slices.Clone(data)
	return json.Unmarshal(data, (*plain)(s))
}

// SubmittedList is the answer to a list of submits, in their order.
type SubmittedList struct {
	Operations []Submitted `json:"operations"`
	Count      int         `json:"count"`
	// Created is how many of the operations are new.
	Created int `json:"created"`
	// Durability is what the answer promises.
	Durability statefs.Durability `json:"durability"`
}
