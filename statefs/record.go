package statefs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"github.com/jobdir/jobdir/steps"
)

// RecordVersion is the version of the record format that this code writes. A record with a higher one is not touched.
const RecordVersion = 1

// recordLimit bounds what is read of a record, so that a file of any size placed there cannot exhaust memory.
const recordLimit = 64 << 20

// Record is everything that is known of an operation. It is one JSON document in operations/DAY/ID.json, replaced as a whole.
// While the operation is live its marker, not Status, says the state.
type Record struct {
	Version int    `json:"version"`
	ID      ID     `json:"id"`
	Job     string `json:"job"`
	Group   string `json:"group"`
	// Params is the canonical JSON object of the parameters, defaults filled in.
	Params json.RawMessage `json:"params,omitempty"`
	Tags   []string        `json:"tags,omitempty"`
	// RequestHash is the SHA-256, in hexadecimal, of the job's address and CanonicalParams: equal work has equal hashes.
	RequestHash string `json:"request_hash,omitempty"`
	// CanonicalParams is the canonical JSON (RFC 8785) of the parameters that make work equal, byte for byte as it was hashed: all of
	// them, unless the job names some.
	CanonicalParams string `json:"canonical_params,omitempty"`
	// IdempotencyKey is the name that the client gave to the submit, so that a repetition of it gets this operation.
	IdempotencyKey string `json:"idempotency_key,omitempty"`

	// Lane is the queue it waits in and Limits are the semaphores that it takes at its start. Higher priorities start first.
	Lane     string   `json:"lane,omitempty"`
	Limits   []string `json:"limits,omitempty"`
	Priority int      `json:"priority"`
	// Key is the mutex value; operations with the same one never run together. KeyOrder is "submit" or "priority", "" without a key.
	Key      string `json:"key,omitempty"`
	KeyOrder string `json:"key_order,omitempty"`
	// After are the operations whose end it waits for, and Require is what that end must be: "success" or "end", "" without any.
	After   []ID   `json:"after,omitempty"`
	Require string `json:"require,omitempty"`
	// NotBefore is the time before which it does not start, as the submit asked; nil is at once.
	NotBefore *time.Time `json:"not_before,omitempty"`
	// RetryOf is the ended operation whose finished items this one inherits.
	RetryOf *ID `json:"retry_of,omitempty"`
	// FailedItems says that only the items that failed there are done.
	FailedItems bool `json:"failed_items,omitempty"`

	// Status is the state when the record was last written.
	Status State `json:"status"`
	// Next is set when the record was written before the marker was renamed: after a crash the rename is carried out.
	Next   State  `json:"next,omitempty"`
	Result Result `json:"result,omitempty"`
	// Phase is text for people.
	Phase string `json:"phase,omitempty"`
	// Reason says in one sentence why the operation is in its state, where that is not plain.
	Reason string `json:"reason,omitempty"`

	// Run numbers the starts of the work; a write of an older run is refused.
	Run    int `json:"run"`
	Starts int `json:"starts"`
	// LaneTurn is which turn the present run has at the values that its lane rotates, from 1; 0: it rotates none.
	LaneTurn   uint64 `json:"lane_turn,omitempty"`
	Attempts   int    `json:"attempts"`
	Interrupts int    `json:"interrupts"`
	Rescues    int    `json:"rescues"`
	// Deaths counts the runs in a row whose work died without having finished an item; the daemon's own deaths do not count.
	Deaths int `json:"deaths,omitempty"`

	// RedoFrom is the first run whose failed items count as done, 0 for all: those of attempts that failed are done again. Steps have one of their own.
	RedoFrom int `json:"redo_from,omitempty"`
	// Warnings counts the runs that ended in a way which the job declares to be neither a failure nor an attempt.
	Warnings int `json:"warnings,omitempty"`
	// DueAt is when an operation that is scheduled goes into the queue, or one that is failed_retryable is tried again; a paused one keeps it.
	DueAt *time.Time `json:"due_at,omitempty"`
	// RetryUntil is when no further attempt begins, set by the first one that fails when the job bounds it.
	RetryUntil *time.Time `json:"retry_until,omitempty"`

	CreatedAt  time.Time  `json:"created_at"`
	StartedAt  *time.Time `json:"started_at,omitempty"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
	UpdatedAt  time.Time  `json:"updated_at"`
	// PausedSeconds is how long it was paused, pauses that are over alone.
	PausedSeconds float64 `json:"paused_seconds"`
	// HeartbeatAt is the last sign of life of the work, as old as the record; ID.progress has a newer one.
	HeartbeatAt *time.Time `json:"last_heartbeat_at,omitempty"`
	// StalledAt is when the work was found to give no sign of life; absent once it does.
	StalledAt *time.Time `json:"stalled_at,omitempty"`
	// Progress is how far the work was when the record was written.
	Progress *Progress `json:"progress,omitempty"`

	// Header is the JSON of the stream's header, frozen at submit.
	Header json.RawMessage `json:"header"`
	// Footer is the JSON object of the stream's footer, frozen when the operation ends.
	Footer json.RawMessage `json:"footer,omitempty"`
	// LogBytes is the length at which the log is sealed, set when the operation ends.
	LogBytes *int64 `json:"log_bytes,omitempty"`

	// Steps are those of its job in the order in which they are done, nil for a job without; Acts is what persons did about them.
	Steps []steps.Step `json:"steps,omitempty"`
	Acts  []steps.Act  `json:"acts,omitempty"`
	// Trailing says that the operation is completed and that optional steps of it go on.
	Trailing bool `json:"trailing,omitempty"`
	// Corrected are parameters that a person has set since the submit, by name, each as JSON: they count in place of those in Params.
	Corrected map[string]json.RawMessage `json:"corrected,omitempty"`

	Processed int    `json:"processed"`
	FailedN   int    `json:"failed"`
	Error     *Fault `json:"error,omitempty"`
	ExitCode  *int   `json:"exit_code,omitempty"`
	Signal    string `json:"signal,omitempty"`

	// Batch is the first operation of the list that this one was submitted in, nil when it was submitted alone.
	Batch *ID `json:"batch,omitempty"`

	// Then is what became of the job that follows; nil when none does.
	Then *Follower `json:"then,omitempty"`
	// Deliveries are what becomes of the result, one for each target of the job that this end is delivered to; nil while it is live.
	Deliveries []Delivery `json:"deliveries,omitempty"`

	// Definition is the name in definitions/ of the job definition that the operation was submitted under.
	Definition string `json:"definition,omitempty"`
	CreatedBy  string `json:"created_by,omitempty"`
	// OnDisconnect says what the end of the starting connection does: continue, cancel or pause.
	OnDisconnect string       `json:"on_disconnect,omitempty"`
	Transitions  []Transited  `json:"transitions,omitempty"`
	Artifacts    []string     `json:"artifacts,omitempty"`
	Resources    *ResourceUse `json:"resources,omitempty"`

	// Host and Boot are the machine, by name and by boot, on which the last run began; PID is the process that did its work: the
	// command's leader, or the daemon for handlers.
	Host string `json:"host,omitempty"`
	Boot string `json:"boot_id,omitempty"`
	PID  int    `json:"pid,omitempty"`

	// FinishedSeq is the place of the end among all ends of the storage, 0 while the operation is live. NeedsPersonSeq is the same
	// for the last time it became failed_manual.
	FinishedSeq    uint64 `json:"finished_seq,omitempty"`
	NeedsPersonSeq uint64 `json:"needs_person_seq,omitempty"`
	// Pinned keeps it from being pruned and deleted.
	Pinned bool `json:"pinned,omitempty"`

	// Extra are members of the document that this version does not know. They are written again as they were.
	Extra map[string]json.RawMessage `json:"-"`
}

// Fault says why an operation failed: a code for programs and a message for people.
type Fault struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Transited is a transition that happened.
type Transited struct {
	From  State     `json:"from,omitempty"`
	To    State     `json:"to"`
	Cause Cause     `json:"cause"`
	At    time.Time `json:"at"`
}

// ResourceUse is what the work used. Times are processor seconds, memory is bytes.
type ResourceUse struct {
	UserSeconds   float64 `json:"user_seconds"`
	SystemSeconds float64 `json:"system_seconds"`
	PeakMemory    int64   `json:"peak_memory_bytes"`
	OutputBytes   int64   `json:"output_bytes"`
}

// CorruptError says that a file exists and cannot be understood.
type CorruptError struct {
	Path   string
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s cannot be read: %s", e.Path, e.Reason)
}

// ErrNewerVersion is wrapped when a file was written by a newer version of jobdir.
var ErrNewerVersion = errors.New("written by a newer version of jobdir")

// transit notes a transition in the record.
func (r *Record) transit(from, to State, cause Cause, at time.Time) {
	if from == Paused && to != Paused {
		r.PausedSeconds += max(0, at.Sub(r.Since()).Seconds())
	}
	switch to {
	case Scheduled, FailedRetryable, Paused:
	case Queued, Running, WaitingApproval, FailedManual, Trailing, Completed, Cancelled, Failed:
		r.DueAt = nil // it waits for no time
	}
	r.Status = to
	r.UpdatedAt = at
	r.Transitions = append(r.Transitions, Transited{From: from, To: to, Cause: cause, At: at})
	if extra := len(r.Transitions) - maxTransitions; extra > 0 {
		r.Transitions = slices.Delete(r.Transitions, 1, 1+extra) // the submit and the newest ones stay
	}
}

// Since is when the present state was entered, as far as the record says.
func (r *Record) Since() time.Time {
	if n := len(r.Transitions); n > 0 {
		return r.Transitions[n-1].At
	}
	return r.CreatedAt
}

// Worked is how long the last run has worked until now, without the time in which it was paused. The run is what follows the last start in
// the list, whatever the times say: the clock may have been set since. A time in which the clock went back counts as none.
func (r *Record) Worked(now time.Time) time.Duration {
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

// QueuedAt is when the operation was queued before a transition that it made; false when the list no longer says.
func (r *Record) QueuedAt(t Transited) (time.Time, bool) {
	for i := slices.Index(r.Transitions, t) - 1; i >= 0; i-- {
		if r.Transitions[i].To == Queued {
			return r.Transitions[i].At, true
		}
	}
	return time.Time{}, false
}

// lastStart is the index of the transition by which the last run began, 0 when it is no longer in the list.
func (r *Record) lastStart() int {
	for i, t := range slices.Backward(r.Transitions) {
		if t.From == Queued && t.To == Running {
			return i
		}
	}
	return 0
}

// Follower is the operation that an operation submitted when it was completed, or why there is none.
type Follower struct {
	ID    ID     `json:"id,omitzero"`
	Error string `json:"error,omitempty"`
}

// maxTransitions bounds the history in the record: an operation can be paused and resumed for ever.
const maxTransitions = 500

// Apply moves the record by cause from the state from, at the given time. It changes nothing on disk. The error is a
// *TransitionError.
func (r *Record) Apply(from State, cause Cause, at time.Time) error {
	to, err := Next(from, cause)
	if err != nil {
		return err
	}
	r.transit(from, to, cause, at)
	return nil
}

func dayFile(id ID, suffix string) string { return path.Join(operationsDir, id.Day(), id.text+suffix) }

// ReadRecord returns the record of an operation. The error wraps fs.ErrNotExist when there is none, is a *CorruptError when it
// cannot be understood, and wraps ErrNewerVersion when it must be left alone.
func (t *Tree) ReadRecord(id ID) (*Record, error) {
	data, err := t.readRecordFile(id)
	if err != nil {
		return nil, err
	}
	return decodeRecord(dayFile(id, ".json"), id, data)
}

// endWords are what a terminal record cannot do without.
var endWords = func() (words [][]byte) {
	for _, state := range terminalStates {
		words = append(words, []byte(`"`+string(state)+`"`))
	}
	return words
}()

// ReadEnded is ReadRecord for who only wants an operation that has ended, nil without an error for any other: a record in which the word of no end stands is not
// decoded, which costs much less for a hundred thousand that wait.
func (t *Tree) ReadEnded(id ID) (*Record, error) {
	data, err := t.readRecordFile(id)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(endWords, func(word []byte) bool { return says(data, word) }) {
		return nil, nil //nolint:nilnil // documented: there is no such end
	}
	rec, err := decodeRecord(dayFile(id, ".json"), id, data)
	if err != nil || !rec.Status.Terminal() {
		return nil, err
	}
	return rec, nil
}

// EndOf returns the record of an operation that has ended and whose end is durable, nil without an error for one that lives or of which there is
// no record. The record has its name before its folder is synced, and the marker goes after that: while it is there, a power cut may take the
// end back.
func (t *Tree) EndOf(id ID) (*Record, error) {
	rec, err := t.ReadEnded(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // documented: there is no such end
	}
	if err != nil || rec == nil {
		return nil, err
	}
	sight, err := t.LookFor(id, allMarkers)
	if err != nil || len(sight.States) > 1 || len(sight.States) == 1 && sight.States[0] != Trailing {
		return nil, err
	}
	return rec, nil
}

// says reports whether a word stands in a JSON text other than as the name of a member.
func says(data, word []byte) bool {
	for {
		i := bytes.Index(data, word)
		if i < 0 {
			return false
		}
		data = data[i+len(word):]
		if after := bytes.TrimLeft(data, " \t\r\n"); len(after) == 0 || after[0] != ':' {
			return true
		}
	}
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

// versionOf is the format of a record, as far as it can be told.
func versionOf(data []byte) int {
	var head struct {
		Version int `json:"version"`
	}
	_ = json.Unmarshal(data, &head) // a member of another type does not keep it from being read
	return head.Version
}

// readRegular reads a whole regular file below root. A symbolic link, a directory, a fifo or a device is refused without
// following it and without blocking.
func (t *Tree) readRegular(root *os.Root, name string, limit int64) ([]byte, error) {
	f, info, err := openRegular(root, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading: nothing can be lost
	var into bytes.Buffer
	into.Grow(int(min(info.Size(), limit)) + bytes.MinRead) // one allocation, unless the file grows meanwhile
	if _, err := into.ReadFrom(io.LimitReader(f, limit+1)); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	data := into.Bytes()
	if int64(len(data)) > limit {
		return nil, &CorruptError{name, fmt.Sprintf("it is larger than %d bytes", limit)}
	}
	return data, nil
}

// errIrregular is wrapped when a name is not a regular file.
var errIrregular = errors.New("not a regular file")

// openRegular opens a regular file for reading. It looks before it opens, because a Root follows links that stay inside, and
// looks at the descriptor afterwards, because the name may have changed in between; O_NONBLOCK keeps a fifo from blocking.
func openRegular(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	before, err := root.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, nil, &fs.PathError{Op: "open", Path: name, Err: errIrregular}
	}
	f, err := root.OpenFile(name, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: errIrregular}
	}
	if err != nil {
		_ = f.Close() // the reason of the refusal matters, not this one
		return nil, nil, err
	}
	return f, info, nil
}

// Unknown returns a record for an operation of which nothing is known but its ID.
func Unknown(id ID, now time.Time) *Record {
	header, _ := json.Marshal(map[string]any{"id": id, "total": nil}) // an ID always encodes
	return &Record{
		Version: RecordVersion, ID: id, Job: id.Endpoint(), Params: json.RawMessage("{}"), CreatedAt: now, UpdatedAt: now,
		Header: header,
	}
}
