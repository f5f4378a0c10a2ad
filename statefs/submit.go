package statefs

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/steps"
)

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
	// With FailedItems it does only the items that failed there, not those that never began.
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
	seq, err := t.sequence.take()
	if err != nil {
		return nil, err
	}
	now := t.options.Now()
	id, err := MakeID(s.Group+"-"+s.Job, now, os.Getpid(), seq)
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

func (t *Tree) writeRecord(rec *Record) error {
	data, err := marshalRecord(rec)
	if err != nil {
		return fmt.Errorf("record of %s: %w", rec.ID, err)
	}
	return t.files.Replace(dayFile(rec.ID, ".json"), append(data, '\n'), false)
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
			return fmt.Errorf("keep the job definition: %w", err)
		}
		folder, err := files.OpenFolder(path.Join(t.dir, definitionsDir), t.durable())
		if err != nil {
			return fmt.Errorf("keep the job definition: %w", err)
		}
		err = folder.Sync()
		_ = folder.Close() // opened for reading
		if err != nil {
			return err
		}
	}
	t.storedDefinitions.Store(hash, true)
	return nil
}

// Definition returns the job definition stored under a hash.
func (t *Tree) Definition(hash string) ([]byte, error) {
	if !isHash(hash) {
		return nil, fmt.Errorf("definition %q: not a hash", shorten(hash))
	}
	return t.readRegular(path.Join(definitionsDir, hash+".yaml"), 1<<20)
}

func isHash(text string) bool {
	if len(text) != 64 {
		return false
	}
	for _, c := range []byte(text) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
