package live

import (
	"hash/maphash"
	"slices"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// A snapshot has hashes of what the subscribers know of a record, since they only find it again in a later record.
var hashSeed = maphash.MakeSeed()

// Committed returns the snapshot that follows s when a commit has made all of the record durable.
func (s *Snapshot) Committed(rec *statefs.Record) *Snapshot {
	next := *s
	next.LastTransition, next.Steps = 0, hashesOfSteps(rec)
	if n := len(rec.Transitions); n > 0 {
		next.LastTransition = hashOf(rec.Transitions[n-1])
	}
	return &next
}

// Transitions returns the transitions that the change made durable, in order.
func (c *Change) Transitions() []statefs.PastTransition {
	if c.Record == nil {
		return nil
	}
	for i, t := range slices.Backward(c.Record.Transitions) {
		if hashOf(t) == c.Before.LastTransition {
			return c.Record.Transitions[i+1:]
		}
	}
	return c.Record.Transitions
}

// Steps returns the steps whose status or run the change made durable.
func (c *Change) Steps() (changed []*steps.Step) {
	if c.Record == nil {
		return nil
	}
	for i, hash := range hashesOfSteps(c.Record) {
		if i >= len(c.Before.Steps) || hash != c.Before.Steps[i] {
			changed = append(changed, &c.Record.Steps[i])
		}
	}
	return changed
}

func hashOf(t statefs.PastTransition) uint64 {
	t.At = t.At.Round(0).UTC() // as it is in a file
	return maphash.Comparable(hashSeed, t)
}

func hashesOfSteps(rec *statefs.Record) (hashes []uint64) {
	for _, s := range rec.Steps {
		hashes = append(hashes, maphash.Comparable(hashSeed, [2]any{s.Status, s.Run}))
	}
	return hashes
}
