package statefs

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jobdir/jobdir/statefs/commit"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/machine"
	"github.com/jobdir/jobdir/statefs/steps"
)

// Draft creates the record of a new operation, with its number and ID, and writes none of it to
// disk. Pass it to Publish or Discard.
func (t *Tree) Draft(s Submission) (*Record, error) {
	if s.Key != "" { // in the order of their numbers: see SubmitListener
		t.drafting.Lock()
		defer t.drafting.Unlock()
	}
	rec, err := t.newRecord(s)
	if err != nil {
		return nil, fmt.Errorf("submit %s/%s: %w", s.Group, s.Job, err)
	}
	if s.Key != "" {
		t.handover.notify(func(l SubmitListener) { l.Expect(rec) })
	}
	return rec, nil
}

// Discard gives up drafts that will not be published.
func (t *Tree) Discard(recs ...*Record) {
	if len(recs) > 0 {
		t.handover.notify(func(l SubmitListener) { l.Withdraw(recs...) })
	}
}

// Publish creates the operations of the drafts, all or none, and returns when they are as durable
// as the storage promises. The records of several drafts are synced as one file, and the folders
// once for all. A *PartialPublishError is the exception: all operations are accepted, but some
// begin only after the next start of the daemon.
func (t *Tree) Publish(recs ...*Record) error {
	if len(recs) == 0 {
		return nil
	}
	if err := t.publish(recs); err != nil {
		t.Discard(slices.DeleteFunc(slices.Clone(recs), t.hasMarker)...) // the daemon takes the others
		return t.jobsFolderCause(err)
	}
	return nil
}

func (t *Tree) hasMarker(rec *Record) bool {
	_, err := t.State(rec.ID)
	return err == nil
}

// ReadSubmitted is [Tree.ReadRecord], but the record of a submit that was cut off before its marker
// existed counts as missing: no client knows the operation, and it never begins. So does a submit
// that is still under way.
func ReadSubmitted(t *Tree, id ID) (*Record, error) {
	rec, err := t.ReadRecord(id)
	if err != nil || !rec.asSubmitted() {
		return rec, err
	}
	if _, err := t.State(id); !errors.Is(err, ErrNotLive) {
		return rec, err
	}
	if rec.Batch != nil { // accepted by the file of its list; a start makes the missing marker
		if _, err := t.root.Lstat(batchName(*rec.Batch, batchSuffix)); err == nil {
			return rec, nil
		}
	}
	answered, err := t.live.IDs()
	if err != nil || answered[id] { // its marker was removed
		return rec, err
	}
	// It may have begun or ended since the record was read.
	if rec, err = t.ReadRecord(id); err == nil && rec.asSubmitted() {
		return nil, fmt.Errorf("the submit of operation %s was cut off: %w", id, fs.ErrNotExist)
	}
	return rec, err
}

// asSubmitted reports whether nothing has happened to the operation since its submit.
func (r *Record) asSubmitted() bool {
	return r.Status.Live() && r.Next == "" && r.Starts == 0 && len(r.Transitions) == 1 &&
		r.Transitions[0].Cause == CauseSubmit
}

// EnsureDurable returns when an operation that another process is submitting is as durable as the
// storage promises and can be acknowledged.
func (t *Tree) EnsureDurable(id ID) error {
	if err := t.syncOperation(id); err != nil {
		return err
	}
	t.live.Add(id)
	return nil
}

// PartialPublishError reports that some markers of a list could not be created after others were.
// The next start creates them.
type PartialPublishError struct{ Err error }

func (e *PartialPublishError) Error() string {
	return fmt.Sprintf("The list is accepted, and some of its operations begin only when the daemon is started again: %v",
		e.Err)
}

func (e *PartialPublishError) Unwrap() error { return e.Err }

func (t *Tree) publish(recs []*Record) error {
	days := make(map[string]bool)
	for _, rec := range recs {
		days[rec.ID.Day()] = true
	}
	for day := range days {
		if _, err := t.day(day); err != nil {
			return err
		}
	}
	if log := t.commits.log.Load(); log != nil {
		return t.publishByJournal(log, recs)
	}
	return t.publishByFiles(recs, days)
}

// publishByFiles writes and syncs the records and the markers of operations of some days.
func (t *Tree) publishByFiles(recs []*Record, days map[string]bool) error {
	list := len(recs) > 1
	if list {
		for _, rec := range recs {
			rec.Batch = &recs[0].ID
		}
		t.handover.notify(func(l SubmitListener) { l.Expect(recs...) })
	}
	// Numbers are unique; this check guards a storage restored from a backup. If nothing is written
	// before the record, creating the record checks its name.
	if list || recs[0].RetryOf != nil {
		if err := t.checkNoRecords(recs); err != nil {
			return err
		}
	}
	if list {
		if err := t.openBatch(recs); err != nil {
			return errors.Join(err, t.dropBatch(recs[0].ID))
		}
	}
	err := ForEachParallel(recs, parallelWriters, t.publishRecord)
	if !list && errors.Is(err, fs.ErrExist) { // not ours to remove
		return fmt.Errorf("operation %s: %w", recs[0].ID, err)
	}
	if err == nil {
		err = t.publishMarker(recs[0])
	}
	if err != nil {
		return t.revoke(recs, err)
	}
	if list {
		if err := ForEachParallel(recs[1:], parallelWriters, t.publishMarker); err != nil {
			return &PartialPublishError{err}
		}
	}
	if err := t.checkJobsFolder(); err != nil {
		return err // the daemon of that folder ends, and the next one finds the record
	}
	if err := t.syncOperations(days); err != nil {
		return err
	}
	t.live.Add(idsOf(recs)...) // only from here on does a start treat a missing marker as removed
	if list {
		t.closeBatch(recs[0].ID)
	}
	return nil
}

// publishByJournal commits all operations with one frame, and makes their markers then. Their record files follow.
func (t *Tree) publishByJournal(log *commit.Log, recs []*Record) error {
	if len(recs) > 1 {
		for _, rec := range recs {
			rec.Batch = &recs[0].ID
		}
		t.handover.notify(func(l SubmitListener) { l.Expect(recs...) })
	}
	if err := t.checkNoRecords(recs); err != nil { // guards a storage restored from a backup
		return err
	}
	changes, size := make([]commit.Change, len(recs)), int64(0)
	for i, rec := range recs {
		if rec.RetryOf != nil {
			if err := t.inheritItems(*rec.RetryOf, rec); err != nil {
				return err
			}
		}
		if len(recs) == 1 {
			t.handover.notify(func(l SubmitListener) { l.Start(rec) })
		}
		c, err := changeOf(rec)
		if err != nil {
			return err
		}
		c.IsNew, c.MovesMarker = true, true
		changes[i] = c
		size += int64(len(c.Record)) + 64
	}
	if err := log.Room(size); err != nil {
		return err
	}
	first := log.Append(changes...)
	for i, rec := range recs {
		rec.LSN = first + uint64(i)
	}
	if err := log.Wait(recs[0].ID.text); err != nil {
		return err
	}
	if err := t.publishMarker(recs[0]); err != nil {
		t.withdraw(recs)
		t.Discard(recs[0]) // also if a file with the name of its marker exists
		return errors.Join(err, t.commits.forget(idsOf(recs)))
	}
	_ = ForEachParallel(recs[1:], parallelWriters, func(rec *Record) error {
		if err := t.publishMarker(rec); err != nil {
			t.lateMarkers.Store(rec.ID, handedOver(rec))
			_, err = t.commits.write(rec) // whose file is written after the marker
			return err
		}
		return nil
	})
	if err := t.checkJobsFolder(); err != nil { // the daemon of that folder ends, and no start misses the marker
		for _, rec := range recs {
			t.live.remove(rec.ID)
		}
		return err
	}
	return nil
}

func idsOf(recs []*Record) []ID {
	ids := make([]ID, len(recs))
	for i, rec := range recs {
		ids[i] = rec.ID
	}
	return ids
}

// revoke removes operations that have no marker yet.
func (t *Tree) revoke(recs []*Record, why error) error {
	if len(recs) > 1 {
		if err := t.dropBatch(recs[0].ID); err != nil {
			return &PartialPublishError{errors.Join(why, err)}
		}
	}
	t.withdraw(recs)
	return why
}

// publishRecord writes everything of an operation except its marker. The record of an operation of
// a list is durable in the file of the list.
func (t *Tree) publishRecord(rec *Record) error {
	if rec.RetryOf != nil {
		if err := t.inheritItems(*rec.RetryOf, rec); err != nil {
			return err
		}
	}
	data, err := marshalRecord(rec)
	if err != nil {
		return fmt.Errorf("record of %s: %w", rec.ID, err)
	}
	return t.files.Create(dayFile(rec.ID, ".json"), append(data, '\n'), rec.Batch == nil && t.options.Durability == Power)
}

func (t *Tree) publishMarker(rec *Record) error {
	t.handover.put(rec)
	t.handover.notify(func(l SubmitListener) { l.Announce(rec) })
	return t.createMarker(rec)
}

func (t *Tree) createMarker(rec *Record) error {
	err := t.files.Create(path.Join(jobsDir, MarkerName(rec.ID, rec.Status)), formatStamp(rec.CreatedAt, nil), false)
	if err == nil {
		if t.commits.log.Load() != nil {
			t.live.Add(rec.ID) // before the line counts as seen: the next checkpoint may cover it
		}
		t.commits.seen(rec.ID) // before the daemon begins to move it
		t.handover.notify(func(l SubmitListener) { l.Created(Name{ID: rec.ID, State: rec.Status}) })
	}
	return err
}

// withdraw removes operations without a marker: no client knows them and the daemon has not seen
// them. A record that cannot be removed is not in the list of live operations and has no effect.
func (t *Tree) withdraw(recs []*Record) {
	for _, rec := range recs {
		t.handover.take(rec.ID)
		if err := t.root.Remove(dayFile(rec.ID, ".json")); err == nil || files.IsMissing(err) {
			_ = t.root.Remove(dayFile(rec.ID, itemsSuffix)) // the inherited items
		}
	}
}

// syncOperations makes the names of operations durable: their records and their markers. It syncs
// all folders in parallel.
func (t *Tree) syncOperations(days map[string]bool) error {
	if t.options.Durability != Power {
		return nil
	}
	errs := make(chan error, len(days))
	for day := range days {
		go func() { errs <- t.syncDay(day) }()
	}
	err := t.jobsSync.Sync()
	for range days {
		err = errors.Join(err, <-errs)
	}
	return err
}

// Submission describes a new operation.
type Submission struct {
	Group, Job string
	// Params is the canonical JSON object of the parameters; nil means {}.
	Params json.RawMessage
	Tags   []string
	// CanonicalParams are the parameters that identify equal work, as canonical JSON; "" means
	// Params.
	CanonicalParams string
	// IdempotencyKey is the client's key of the submit, "" without one.
	IdempotencyKey string
	// Lane, Limits, Priority, Key and KeyOrder determine when it may start; the record has them
	// unchanged.
	Lane     string
	Limits   []string
	Priority int
	Key      string
	KeyOrder string
	// After are operations it waits for, and Require is the end they must have: RequireSuccess or
	// RequireEnd.
	After   []ID
	Require string
	// NotBefore is the earliest start time; nil is at once.
	NotBefore *time.Time
	// Total is the number of items if known at submit; it is in the header of the stream.
	Total *int64
	// Definition is the job definition at submit, and DefinitionHash its SHA-256 in hexadecimal,
	// under which it is stored. With an empty hash it is not stored.
	Definition     []byte
	DefinitionHash string
	CreatedBy      string
	OnDisconnect   string
	// RetryOf is an ended operation of the same job whose successful items the new one inherits.
	// With FailedItems it does only the items that failed there, not the items that never began.
	RetryOf     *ID
	FailedItems bool
	// Steps are the steps of the job in their order, nil for a job without steps. Steps that
	// RetryOf has finished are marked as done.
	Steps []steps.Step
	// Phase is the initial phase of the record, "" for none.
	Phase string
}

// The values of Require.
const (
	// RequireSuccess starts an operation after the ones before it have succeeded.
	RequireSuccess = "success"
	// RequireEnd starts it after they have ended in any way.
	RequireEnd = "end"
)

func (t *Tree) newRecord(s Submission) (*Record, error) {
	if err := t.Descriptors.ForWork(1); err != nil {
		return nil, err
	}
	if err := t.keepDefinition(s.DefinitionHash, s.Definition); err != nil {
		return nil, err
	}
	seq, err := t.numbers.take()
	if err != nil {
		return nil, err
	}
	now := t.options.Now()
	id, err := MakeID(s.Group+"-"+s.Job, now, machine.PID, seq)
	if err != nil {
		return nil, err
	}
	return recordOf(id, s, now)
}

// Rebuild creates the record of an operation whose record was lost, from what is still known of its
// submit.
func (t *Tree) Rebuild(id ID, s Submission, createdAt time.Time) (*Record, error) {
	if err := t.keepDefinition(s.DefinitionHash, s.Definition); err != nil {
		return nil, err
	}
	return recordOf(id, s, createdAt)
}

// recordOf creates the first record of an operation.
func recordOf(id ID, s Submission, now time.Time) (*Record, error) {
	header, err := json.Marshal(struct {
		ID    ID     `json:"id"`
		Total *int64 `json:"total"`
	}{id, s.Total})
	if err != nil {
		return nil, err
	}
	rec := &Record{
		Version: RecordVersion, ID: id, Job: s.Job, Group: s.Group, Params: s.Params, Tags: s.Tags,
		CreatedAt: now, Header: header, Definition: s.DefinitionHash, CreatedBy: s.CreatedBy, OnDisconnect: s.OnDisconnect,
	}
	if rec.Params == nil {
		rec.Params = json.RawMessage("{}")
	}
	rec.RetryOf, rec.FailedItems, rec.Steps, rec.Phase = s.RetryOf, s.FailedItems, steps.Clone(s.Steps),
		cmp.Or(s.Phase, FirstPhase)
	rec.CanonicalParams, rec.IdempotencyKey = cmp.Or(s.CanonicalParams, string(rec.Params)), s.IdempotencyKey
	rec.RequestHash = RequestHash(s.Group, s.Job, rec.CanonicalParams)
	rec.Lane, rec.Limits, rec.Priority, rec.Key, rec.KeyOrder = s.Lane, s.Limits, s.Priority, s.Key, s.KeyOrder
	rec.After, rec.Require, rec.NotBefore = s.After, s.Require, s.NotBefore
	first := Queued
	if s.NotBefore != nil && s.NotBefore.After(now) {
		first, rec.DueAt = Scheduled, new(*s.NotBefore)
	}
	rec.transit("", first, CauseSubmit, now)
	return rec, nil
}

// RequestHash returns the hash that equal work shares: the SHA-256, in hexadecimal, of the job's
// address, a NUL, which no address contains, and the canonical JSON of the parameters that count.
func RequestHash(group, job, canonicalParams string) string {
	sum := sha256.New()
	_, _ = io.WriteString(sum, group+"/"+job+"\x00"+canonicalParams) // writing to a hash does not fail
	return hex.EncodeToString(sum.Sum(nil))
}

// keepDefinition stores a definition under its hash, once.
func (t *Tree) keepDefinition(hash string, source []byte) error {
	if hash == "" {
		return nil
	}
	if !isHash(hash) {
		return fmt.Errorf("definition %q: not a hash", shorten(hash))
	}
	if _, known := t.storedDefinitions.Load(hash); known {
		return nil
	}
	name := path.Join(definitionsDir, hash+".yaml")
	// A power cut may have left the file empty.
	if info, err := t.root.Lstat(name); err != nil || info.Size() != int64(len(source)) {
		if err := t.files.Replace(name, source, false); err != nil {
			return fmt.Errorf("store the job definition: %w", err)
		}
		if err := t.syncFolder(definitionsDir); err != nil {
			return fmt.Errorf("store the job definition: %w", err)
		}
	}
	t.storedDefinitions.Store(hash, true)
	return nil
}

// Definition returns the job definition stored under a hash.
func (s *storage) Definition(hash string) ([]byte, error) {
	if !isHash(hash) {
		return nil, fmt.Errorf("definition %q: not a hash", shorten(hash))
	}
	return s.readRegular(path.Join(definitionsDir, hash+".yaml"), 1<<20)
}

func isHash(text string) bool { return len(text) == 64 && strings.Trim(text, "0123456789abcdef") == "" }

// handover holds records that this process has published and its daemon has not reconciled yet, so
// that the daemon need not read them back. Records that are not in it, such as submits of other
// processes, are read from disk. It is safe for concurrent use.
type handover struct {
	mu       sync.Mutex
	open     bool // this process has the lock of the storage
	records  map[ID]*Record
	listener SubmitListener // nil: none
}

// SubmitListener is notified of this process's submits before they are visible in jobs/, and of its
// submits and requests once they are. Its methods must return quickly and may be called from any goroutine.
type SubmitListener interface {
	// Expect is called when an operation with a key gets its number, before the next operation with
	// a key gets one. It is also called with all operations of a list before the first is visible.
	Expect(recs ...*Record)
	// Withdraw is called with drafts that are not submitted, or not now, whether expected or announced.
	Withdraw(recs ...*Record)
	// Announce is called with the record of an operation before its marker is visible. Created follows, or
	// Withdraw. The record is read-only, and only until Announce returns.
	Announce(rec *Record)
	// Start is called with a draft that is submitted alone and about to be committed by the journal. If the operation
	// may begin at once, Start makes its start a part of the record. Announce follows, or Withdraw.
	Start(rec *Record)
	// Created is called when a new marker or a request is in jobs/, so that its event need not be awaited.
	Created(name Name)
}

// notify calls with the listener, unless this process does not own the storage or has set none.
func (h *handover) notify(call func(SubmitListener)) {
	h.mu.Lock()
	to := h.listener
	h.mu.Unlock()
	if to != nil {
		call(to)
	}
}

// maxHandedOver bounds the records held. A daemon takes each within milliseconds; a record that it
// never takes must not stay forever.
const maxHandedOver = 4096

// put adds a record before its marker is visible. The caller keeps its record.
func (h *handover) put(rec *Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.open {
		return
	}
	if len(h.records) >= maxHandedOver {
		clear(h.records)
	}
	h.records[rec.ID] = handedOver(rec)
}

// handedOver returns a copy that shares nothing that changes.
func handedOver(rec *Record) *Record {
	own := *rec
	own.Transitions, own.Steps = slices.Clip(rec.Transitions), steps.Clone(rec.Steps)
	return &own
}

func (h *handover) take(id ID) *Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	rec := h.records[id]
	delete(h.records, id)
	return rec
}

func (h *handover) reset(open bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open, h.records, h.listener = open, make(map[ID]*Record), nil
}

// syncOperation makes the names of an operation durable: its record and its marker.
func (t *Tree) syncOperation(id ID) error { return t.syncOperations(map[string]bool{id.Day(): true}) }

// inheritItems gives a new operation the successful item results of the operation that it repeats;
// failed items are done again. The results have their name and are on disk before the record, so
// every record with retry_of has them. Results of an optional step go to the file that the new
// operation uses for that step: the step may be required there.
func (t *Tree) inheritItems(from ID, to *Record) error {
	old, err := t.ReadRecord(from)
	if err != nil {
		return fmt.Errorf("inherit the items of %s: %w", from, err)
	}
	sources := []string{dayFile(from, itemsSuffix)}
	for i := range old.Steps {
		name := old.Steps[i].Name
		if old.Steps[i].Log == "" {
			continue
		}
		here := steps.Find(to.Steps, name)
		switch {
		case here == nil:
		case here.Optional:
			err = errors.Join(t.MakeStepFolder(to.ID), t.copyItems(old, stepFile(to.ID, name, itemsSuffix),
				stepFile(from, name, itemsSuffix)))
		default:
			sources = append(sources, stepFile(from, name, itemsSuffix))
		}
	}
	err = errors.Join(err, t.copyItems(old, dayFile(to.ID, itemsSuffix), sources...))
	if err == nil {
		// A deletion removes the record before the items: while there is a record, the items were
		// complete.
		_, err = t.root.Lstat(dayFile(from, ".json"))
	}
	if err != nil {
		return fmt.Errorf("inherit the items of %s: %w", from, err)
	}
	return nil
}

// A list of submits is one file in taken/, named by the ID of its first operation, with one record
// per line. It is synced before anything else of the list is written; from then on the list is
// accepted, and a restart creates the missing parts. The records of a list therefore need no sync
// before the answer.
//
//	taken/ID.batch    the records and the markers are being created
//	taken/ID.records  all exist; a record that a power cut loses is restored from here
//
// Later [Batches.Settle] syncs the records and removes the file.
const (
	batchSuffix   = ".batch"
	recordsSuffix = ".records"
)

// batchName returns the file of a list, given its first operation.
func batchName(first ID, suffix string) string { return path.Join(takenDir, first.text+suffix) }

// openBatch writes and syncs the file of a list.
func (s *storage) openBatch(recs []*Record) error {
	var lines bytes.Buffer
	for _, rec := range recs {
		data, err := marshalRecord(rec)
		if err != nil {
			return fmt.Errorf("record of %s: %w", rec.ID, err)
		}
		lines.Write(data)
		lines.WriteByte('\n')
	}
	if err := s.files.Replace(batchName(recs[0].ID, batchSuffix), lines.Bytes(), false); err != nil {
		return err
	}
	return s.syncFolder(takenDir)
}

// closeBatch notes that the records and markers of a list exist. If the note fails, the next start
// removes the file.
func (s *storage) closeBatch(first ID) {
	if s.options.Durability == Power {
		_ = s.root.Rename(batchName(first, batchSuffix), batchName(first, recordsSuffix))
		return
	}
	_ = s.root.Remove(batchName(first, batchSuffix)) // with process durability a power cut may lose the records
}

// dropBatch removes the file of a list that was not submitted. On an error, the next start creates
// the whole list anyway.
func (s *storage) dropBatch(first ID) error {
	err := s.root.Remove(batchName(first, batchSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
