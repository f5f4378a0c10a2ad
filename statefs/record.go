package statefs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/jobdir/jobdir/statefs/steps"
)

// RecordVersion is the version of the record format that this code writes. Records with a higher
// version are not touched.
const RecordVersion = 1

// recordLimit bounds how much of a record is read, in bytes, so that a huge file cannot exhaust
// memory.
const recordLimit = 64 << 20

// Record is everything known about an operation: one JSON document in operations/DAY/ID.json,
// replaced as a whole. While the operation is live, its marker holds the state, not Status.
type Record struct {
	Version int    `json:"version"`
	ID      ID     `json:"id"`
	Job     string `json:"job"`
	Group   string `json:"group"`
	// Params is the canonical JSON object of the parameters, including defaults.
	Params json.RawMessage `json:"params,omitempty"`
	Tags   []string        `json:"tags,omitempty"`
	// RequestHash is the SHA-256, in hexadecimal, of the job's address and CanonicalParams: equal work has equal hashes.
	RequestHash string `json:"request_hash,omitempty"`
	// CanonicalParams is the canonical JSON (RFC 8785), exactly as hashed, of the parameters that
	// identify equal work: all of them, unless the job names some.
	CanonicalParams string `json:"canonical_params,omitempty"`
	// IdempotencyKey is the client's key of the submit: a repeated submit with it returns this
	// operation.
	IdempotencyKey string `json:"idempotency_key,omitempty"`

	// Lane is the queue in which it waits; Limits are the semaphores that it takes at its start.
	// Higher priorities start first.
	Lane     string   `json:"lane,omitempty"`
	Limits   []string `json:"limits,omitempty"`
	Priority int      `json:"priority"`
	// Key is the mutex value: operations with the same key never run together. KeyOrder is
	// "submit", "priority" or "any", "" without a key.
	Key      string `json:"key,omitempty"`
	KeyOrder string `json:"key_order,omitempty"`
	// After are the operations it waits for, and Require is the end they must have: "success" or
	// "end", "" if After is empty.
	After   []ID   `json:"after,omitempty"`
	Require string `json:"require,omitempty"`
	// NotBefore is the earliest start time from the submit; nil is at once.
	NotBefore *time.Time `json:"not_before,omitempty"`
	// RetryOf is the ended operation whose successful items this one inherits.
	RetryOf *ID `json:"retry_of,omitempty"`
	// FailedItems means that only the items that failed in RetryOf are done.
	FailedItems bool `json:"failed_items,omitempty"`

	// Status is the state when the record was last written.
	Status State `json:"status"`
	// Next is set if the record was written before the rename of the marker: after a crash, the
	// rename is carried out.
	Next   State  `json:"next,omitempty"`
	Result Result `json:"result,omitempty"`
	// Phase is for people: FirstPhase at first, then the phase that the work reports or the
	// milestone reached, at the end the final state.
	Phase string `json:"phase,omitempty"`
	// Reason explains in one sentence why the operation is in its state, where that is not obvious.
	Reason string `json:"reason,omitempty"`

	// Run numbers the starts of the work; writes of an older run are refused.
	Run    int `json:"run"`
	Starts int `json:"starts"`
	// LaneTurn is the turn of the present run in the rotation of its lane's environment, from 1; 0
	// without a rotation.
	LaneTurn   uint64 `json:"lane_turn,omitempty"`
	Attempts   int    `json:"attempts"`
	Interrupts int    `json:"interrupts"`
	Rescues    int    `json:"rescues"`
	// DiedAt is when runs died within the crash limit of the job, the newest last: killed by a
	// signal, lost with their keeper, or interrupted by a crash of the daemon or the machine. A
	// retry by a person empties it.
	DiedAt []time.Time `json:"died_at,omitempty"`
	// Backoff counts consecutive failures; it determines the wait before the next attempt.
	Backoff int `json:"backoff,omitempty"`

	// RedoFrom is the first run whose failed items count as done, 0 for all; items that failed in
	// earlier runs are done again. Each step has its own.
	RedoFrom int `json:"redo_from,omitempty"`
	// Warnings counts the runs whose end the job declares to be neither a failure nor an attempt.
	Warnings int `json:"warnings,omitempty"`
	// DueAt is when a scheduled operation is queued, or a failed_retryable one is retried; a paused
	// operation keeps it.
	DueAt *time.Time `json:"due_at,omitempty"`
	// RetryUntil is when attempts stop; the first failed attempt sets it if the job limits the
	// time.
	RetryUntil *time.Time `json:"retry_until,omitempty"`

	CreatedAt  time.Time  `json:"created_at"`
	StartedAt  *time.Time `json:"started_at,omitempty"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
	UpdatedAt  time.Time  `json:"updated_at"`
	// PausedSeconds is the total length of all finished pauses.
	PausedSeconds float64 `json:"paused_seconds"`
	// HeartbeatAt is the last sign of life of the work when the record was written; ID.progress may
	// have a newer one.
	HeartbeatAt *time.Time `json:"last_heartbeat_at,omitempty"`
	// StalledAt is when the work was found to give no sign of life; absent once it gives one.
	StalledAt *time.Time `json:"stalled_at,omitempty"`
	// Progress is how far the work was when the record was written.
	Progress *Progress `json:"progress,omitempty"`

	// Header is the JSON of the stream's header, fixed at submit.
	Header json.RawMessage `json:"header"`
	// Footer is the JSON object of the stream's footer, fixed when the operation ends.
	Footer json.RawMessage `json:"footer,omitempty"`
	// LogBytes is the length at which the log is sealed; set when the operation ends.
	LogBytes *int64 `json:"log_bytes,omitempty"`

	// Steps are the steps of the job in their order, nil for a job without steps; ActionRecords are
	// the actions of people on them.
	Steps         []steps.Step         `json:"steps,omitempty"`
	ActionRecords []steps.ActionRecord `json:"acts,omitempty"`
	// Trailing means that the operation is completed and that optional steps of it go on or wait
	// for a person.
	Trailing bool `json:"trailing,omitempty"`
	// Corrected are parameters that a person has set since the submit, by name, each as JSON. They
	// replace those in Params.
	Corrected map[string]json.RawMessage `json:"corrected,omitempty"`

	Processed int    `json:"processed"`
	FailedN   int    `json:"failed"`
	Error     *Fault `json:"error,omitempty"`
	// FailedAttempts are the last ten failed attempts, the newest last. Error is the newest until a
	// new run begins.
	FailedAttempts []FailedAttempt `json:"failed_attempts,omitempty"`
	ExitCode       *int            `json:"exit_code,omitempty"`
	Signal         string          `json:"signal,omitempty"`

	// Batch is the first operation of the list in which this one was submitted, nil if it was
	// submitted alone.
	Batch *ID `json:"batch,omitempty"`

	// Then is the outcome of submitting the job that follows; nil if there is none.
	Then *Follower `json:"then,omitempty"`
	// Deliveries are the deliveries of the result, one per target of the job for this outcome; nil
	// while the operation is live.
	Deliveries []Delivery `json:"deliveries,omitempty"`

	// Definition is the name in definitions/ of the job definition that the operation was submitted under.
	Definition string `json:"definition,omitempty"`
	CreatedBy  string `json:"created_by,omitempty"`
	// OnDisconnect is what happens when the starting connection ends: continue, cancel or pause.
	OnDisconnect string           `json:"on_disconnect,omitempty"`
	Transitions  []PastTransition `json:"transitions,omitempty"`
	Artifacts    []string         `json:"artifacts,omitempty"`
	Resources    *ResourceUse     `json:"resources,omitempty"`

	// Host and Boot identify the machine and its boot on which the last run began. PID is the
	// process of the work: the leader of the command, or the daemon for handlers.
	Host string `json:"host,omitempty"`
	Boot string `json:"boot_id,omitempty"`
	PID  int    `json:"pid,omitempty"`

	// FinishedSeq is the position of the end among all ends of the storage, 0 while the operation
	// is live. NeedsPersonSeq is the same for the last time it became failed_manual.
	FinishedSeq    uint64 `json:"finished_seq,omitempty"`
	NeedsPersonSeq uint64 `json:"needs_person_seq,omitempty"`
	// Pinned excludes it from pruning and deletion.
	Pinned bool `json:"pinned,omitempty"`

	// LSN is the number of the line of the journal that has this record; 0 if it was not committed by the journal.
	LSN uint64 `json:"lsn,omitempty"`

	// Extra are members of the document that this version does not know. They are written back
	// unchanged.
	Extra map[string]json.RawMessage `json:"-"`
}

// Fault is why an operation failed: a code for programs and a message for people.
type Fault struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// FailedAttempt is a failed attempt: its run and step, the reason and the time.
type FailedAttempt struct {
	Run     int       `json:"run"`
	Step    string    `json:"step,omitempty"`
	Code    string    `json:"code"`
	Message string    `json:"message"`
	At      time.Time `json:"at"`
}

// PastTransition is a transition that happened.
type PastTransition struct {
	From  State     `json:"from,omitempty"`
	To    State     `json:"to"`
	Cause Cause     `json:"cause"`
	At    time.Time `json:"at"`
}

// Progress is the content of ID.progress: the progress of the work and its last sign of life. It
// may be lost.
type Progress struct {
	Done  int64     `json:"done"`
	Total *int64    `json:"total"`
	Phase string    `json:"phase,omitempty"`
	At    time.Time `json:"at"`
	// Step is the progress of the current step of an operation with steps; Done and Total count
	// steps then. It is nil between two steps.
	Step *StepProgress `json:"step,omitempty"`
}

// StepProgress is the progress of one step.
type StepProgress struct {
	Name  string `json:"name"`
	Done  int64  `json:"done"`
	Total *int64 `json:"total"`
	Phase string `json:"phase,omitempty"`
}

// Fraction returns how much of the whole is done, from 0 to 1; a step at work counts in proportion
// to its progress. known is false without a total.
func (p *Progress) Fraction() (fraction float64, known bool) {
	if p.Total == nil || *p.Total <= 0 {
		return 0, false
	}
	done := float64(p.Done)
	if s := p.Step; s != nil && s.Total != nil && *s.Total > 0 && p.Done < *p.Total {
		done += min(float64(max(s.Done, 0))/float64(*s.Total), 1)
	}
	return min(max(done, 0)/float64(*p.Total), 1), true
}

// Same reports whether two progresses are equal except for their time.
func (p *Progress) Same(other *Progress) bool {
	a, b := *p, *other
	a.At, b.At = time.Time{}, time.Time{}
	return reflect.DeepEqual(a, b)
}

// ResourceUse is what the work used: processor time in seconds, memory and output in bytes.
type ResourceUse struct {
	UserSeconds   float64 `json:"user_seconds"`
	SystemSeconds float64 `json:"system_seconds"`
	PeakMemory    int64   `json:"peak_memory_bytes"`
	OutputBytes   int64   `json:"output_bytes"`
}

// CorruptError reports a file that exists and cannot be decoded.
type CorruptError struct {
	Path   string
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s cannot be read: %s", e.Path, e.Reason)
}

// ErrNewerVersion is wrapped when a file was written by a newer version of jobdir.
var ErrNewerVersion = errors.New("written by a newer version of jobdir")

// transit adds a transition to the record.
func (r *Record) transit(from, to State, cause Cause, at time.Time) {
	if from == Paused && to != Paused {
		r.PausedSeconds += max(0, at.Sub(r.Since()).Seconds())
	}
	if to != Scheduled && to != FailedRetryable && to != Paused {
		r.DueAt = nil // it waits for no time
	}
	if to.Terminal() || to == Trailing {
		r.endPhase(to)
	}
	r.Status = to
	r.UpdatedAt = at
	r.Transitions = append(r.Transitions, PastTransition{From: from, To: to, Cause: cause, At: at})
	if extra := len(r.Transitions) - maxTransitions; extra > 0 {
		r.Transitions = slices.Delete(r.Transitions, 1, 1+extra) // the submit and the newest ones stay
	}
}

// FirstPhase is the phase of an operation until its work reports one or reaches a milestone.
const FirstPhase = "created"

// endPhase sets the phase to the final state, unless the operation has reached a milestone.
func (r *Record) endPhase(to State) {
	if len(r.Steps) > 0 && r.Phase != FirstPhase {
		return
	}
	if to == Trailing {
		to = Completed // its required steps are done
	}
	r.Phase = string(to)
	if len(r.Steps) > 0 && r.Progress != nil {
		progress := *r.Progress
		progress.Phase = r.Phase
		r.Progress = &progress
	}
}

// Since returns when the present state was entered, according to the record.
func (r *Record) Since() time.Time {
	if n := len(r.Transitions); n > 0 {
		return r.Transitions[n-1].At
	}
	return r.CreatedAt
}

// ActiveTime returns how long the last run has worked until now, without pauses. The run is
// whatever follows the last start in the list, whatever the timestamps, because the clock may have
// been set. A negative interval counts as zero.
func (r *Record) ActiveTime(now time.Time) time.Duration {
	if r.StartedAt == nil {
		return 0
	}
	var worked time.Duration
	since, paused := *r.StartedAt, false
	step := r.CurrentStep()
	if step != nil && step.StartedAt != nil {
		since = *step.StartedAt // the run of a step begins without a transition
	}
	for _, t := range r.Transitions[r.lastStart():] {
		if step != nil && t.At.Before(since) {
			continue
		}
		if t.To == Paused && !paused {
			worked += max(t.At.Sub(since), 0)
		}
		if t.From == Paused && paused {
			since = t.At
		}
		paused = t.To == Paused
	}
	if !paused {
		worked += max(now.Sub(since), 0)
	}
	return worked
}

// QueuedAt returns when the operation was queued before a transition of it; false if the list no
// longer contains that.
func (r *Record) QueuedAt(t PastTransition) (time.Time, bool) {
	for i := slices.Index(r.Transitions, t) - 1; i >= 0; i-- {
		if r.Transitions[i].To == Queued {
			return r.Transitions[i].At, true
		}
	}
	return time.Time{}, false
}

// lastStart returns the index of the transition that began the last run, 0 if it is no longer in
// the list.
func (r *Record) lastStart() int {
	for i, t := range slices.Backward(r.Transitions) {
		if t.From == Queued && t.To == Running {
			return i
		}
	}
	return 0
}

// Follower is the operation that a completed operation submitted, or the reason why there is none.
type Follower struct {
	ID    ID     `json:"id,omitzero"`
	Error string `json:"error,omitempty"`
}

// maxTransitions bounds the transitions in the record: an operation can be paused and resumed any
// number of times.
const maxTransitions = 500

// Apply applies the transition from a state by a cause to the record, at the given time. It changes
// nothing on disk. The error is a *TransitionError.
func (r *Record) Apply(from State, cause Cause, at time.Time) error {
	to, err := Next(from, cause)
	if err != nil {
		return err
	}
	r.transit(from, to, cause, at)
	return nil
}

func decodeRecord(name string, id ID, data []byte) (*Record, error) {
	rec, err := unmarshalRecord(data)
	if err != nil || rec.Version > RecordVersion {
		if version := versionOf(data); version > RecordVersion {
			return nil, fmt.Errorf("%s: %w (format %d, this one knows %d)", name, ErrNewerVersion, version, RecordVersion)
		}
	}
	if err != nil {
		return nil, &CorruptError{name, err.Error()}
	}
	if rec.ID != id {
		return nil, &CorruptError{name, fmt.Sprintf("it is the record of %q", rec.ID)}
	}
	switch {
	case !rec.Status.Live() && !rec.Status.Terminal():
		return nil, &CorruptError{name, fmt.Sprintf("its status %q is no state", shorten(string(rec.Status)))}
	case rec.Next != "" && !rec.Next.Live():
		return nil, &CorruptError{name, fmt.Sprintf("its next state %q is no live state", shorten(string(rec.Next)))}
	}
	return rec, nil
}

// versionOf returns the format version of a document, 0 if it cannot be found.
func versionOf(data []byte) int {
	var head struct {
		Version int `json:"version"`
	}
	_ = json.Unmarshal(data, &head) // a member of another type does not keep it from being read
	return head.Version
}

// CodeRecordLost is the error code of an operation whose record was damaged or removed: only its ID
// is known.
const CodeRecordLost = "record_lost"

// Lost reports whether the record was lost. Only a cancel is possible then.
func (r *Record) Lost() bool { return r.Error != nil && r.Error.Code == CodeRecordLost }

// UnknownRecord returns a record for an operation if only its ID is known.
func UnknownRecord(id ID, now time.Time) *Record {
	header, _ := json.Marshal(map[string]any{"id": id, "total": nil}) // an ID always encodes
	return &Record{
		Version: RecordVersion, ID: id, Job: id.Endpoint(), Params: json.RawMessage("{}"), CreatedAt: now, UpdatedAt: now,
		Header: header,
	}
}

// A record may come from another version of jobdir or contain members that a person added. Unknown
// members are kept: they are read into Record.Extra and written after the known ones.

// knownMembers are the lower-case JSON names of the fields of Record.
var knownMembers = func() map[string]bool {
	known := make(map[string]bool)
	for field := range reflect.TypeFor[Record]().Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "-" {
			known[strings.ToLower(name)] = true
		}
	}
	return known
}()

func unmarshalRecord(data []byte) (*Record, error) {
	rec := new(Record)
	strict := json.NewDecoder(bytes.NewReader(data))
	strict.DisallowUnknownFields()
	if err := strict.Decode(rec); err == nil && len(bytes.TrimSpace(data[strict.InputOffset():])) == 0 {
		return rec, nil
	}
	rec = new(Record)
	if err := json.Unmarshal(data, rec); err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, err
	}
	for name, value := range members {
		if knownMembers[strings.ToLower(name)] { // encoding/json matches names in any letter case
			continue
		}
		if rec.Extra == nil {
			rec.Extra = make(map[string]json.RawMessage)
		}
		rec.Extra[name] = value
	}
	return rec, nil
}

// Document returns the record as JSON, as written to its file.
func (r *Record) Document() ([]byte, error) { return marshalRecord(r) }

func marshalRecord(rec *Record) ([]byte, error) {
	data, err := json.Marshal(rec)
	if err != nil || len(rec.Extra) == 0 {
		return data, err
	}
	extra, err := json.Marshal(rec.Extra)
	if err != nil {
		return nil, err
	}
	return append(append(data[:len(data)-1], ','), extra[1:]...), nil
}

// CurrentStep returns the first required step that is not done. It is nil if all are done, and for
// a job without steps.
func (r *Record) CurrentStep() *steps.Step {
	return steps.First(r.Steps, func(s *steps.Step) bool { return !s.Optional && !s.Status.Done() })
}

// FailedOptionalStep returns the first optional step that waits for a person, nil if there is none.
func (r *Record) FailedOptionalStep() *steps.Step {
	return steps.First(r.Steps, func(s *steps.Step) bool { return s.Optional && s.Status == steps.FailedManual })
}

// LaneAndLimits returns the lane and the limits for the current step: those of the operation,
// unless the step has its own.
func (r *Record) LaneAndLimits() (lane string, limits []string) {
	return r.LaneAndLimitsFor(r.CurrentStep())
}

// LaneAndLimitsFor is LaneAndLimits for any step; nil is none.
func (r *Record) LaneAndLimitsFor(step *steps.Step) (lane string, limits []string) {
	lane, limits = r.Lane, r.Limits
	if step == nil {
		return lane, limits
	}
	if step.Lane != "" {
		lane = step.Lane
	}
	for _, name := range step.Limits {
		if !slices.Contains(limits, name) {
			limits = append(slices.Clone(limits), name)
		}
	}
	return lane, limits
}

// MainRun returns the number of the last run that was not of an optional step.
func (r *Record) MainRun() int {
	if len(r.Steps) == 0 {
		return r.Run
	}
	run := 0
	for i := range r.Steps {
		if !r.Steps[i].Optional {
			run = max(run, r.Steps[i].Run)
		}
	}
	return run
}

// EffectiveParams returns Params with the corrections made since the submit. A parameter corrected
// to null is left out.
func (r *Record) EffectiveParams() (json.RawMessage, error) {
	if len(r.Corrected) == 0 {
		return r.Params, nil
	}
	members := make(map[string]json.RawMessage)
	if len(r.Params) > 0 {
		if err := json.Unmarshal(r.Params, &members); err != nil {
			return nil, fmt.Errorf("the parameters of %s: %w", r.ID, err)
		}
	}
	for name, value := range r.Corrected {
		if string(value) == "null" {
			delete(members, name)
			continue
		}
		members[name] = value
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(members); err != nil {
		return nil, fmt.Errorf("the parameters of %s: %w", r.ID, err)
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

// DeliveryStatus is the state of a delivery.
type DeliveryStatus string

// The statuses of a delivery.
const (
	DeliveryPending   DeliveryStatus = "pending"       // it is tried until it succeeds
	DeliveryDelivered DeliveryStatus = "delivered"     // the target has it
	DeliveryManual    DeliveryStatus = "failed_manual" // it waits for a person to retry or drop it
	DeliveryDropped   DeliveryStatus = "dropped"       // a person gave it up
)

// Delivery is the outcome of the delivery to one target. The terminal record holds it; the number
// of attempts is in the outbox entry.
type Delivery struct {
	// Place is the position of the target in the job's list, from 1; Kind is that of the target.
	Place int            `json:"target"`
	Kind  string         `json:"kind"`
	Send  string         `json:"send"`
	State DeliveryStatus `json:"status"`
	// Name is the destination at the target: a name below the folder or in the bucket, or a URL
	// without its query, which may hold a secret.
	Name string `json:"name,omitempty"`
	// Error is the reason of failed_manual.
	Error string `json:"error,omitempty"`
	// Output is where the result was delivered, nil before that.
	Output *DeliveryOutput `json:"output,omitempty"`
}

// DeliveryOutput is where a result was delivered.
type DeliveryOutput struct {
	// Location is a path, or a URL without its query.
	Location    string    `json:"location"`
	Bytes       int64     `json:"bytes"`
	SHA256      string    `json:"sha256,omitempty"` // not set for artifacts
	DeliveredAt time.Time `json:"delivered_at"`
	// Bucket, Object and ETag are set for a bucket.
	Bucket string `json:"bucket,omitempty"`
	Object string `json:"object,omitempty"`
	ETag   string `json:"etag,omitempty"`
	// Files is the number of artifacts; Stored lists the first MaxStored of them; Bytes is the size
	// of all.
	Files  int64        `json:"files,omitempty"`
	Stored []StoredFile `json:"stored,omitempty"`
}

// MaxStored is the maximum number of artifacts listed in DeliveryOutput.
const MaxStored = 100

// StoredFile is one artifact at its target.
type StoredFile struct {
	// Artifact is the name in the artifacts folder, Name the name at the target.
	Artifact string `json:"artifact"`
	Name     string `json:"name"`
	Bytes    int64  `json:"bytes"`
	SHA256   string `json:"sha256"`
	ETag     string `json:"etag,omitempty"`
}

// Delivery returns the delivery to the target at a position, nil if there is none. It points into
// the record.
func (r *Record) Delivery(place int) *Delivery {
	return steps.First(r.Deliveries, func(d *Delivery) bool { return d.Place == place })
}
