package work

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/statefs"
)

// Outcome is how the work of a run ended.
type Outcome struct {
	Err error
	// Exit is that of the command of the whole run, nil if there was none.
	Exit *keeper.Exit
	// retryAfter is the wait that the command requests before the next attempt, 0 for none.
	retryAfter time.Duration
}

// Outcome returns how the work ended. It is called after the end.
func (r *Run) Outcome() *Outcome { return &r.outcome }

// EndedByItself reports whether the command exited before the daemon signalled it. Such an exit
// counts even if a cancel came while leftover child processes were still being ended.
func (o *Outcome) EndedByItself() bool {
	return o.Exit != nil && o.Exit.Cause == "" && (o.Exit.Code >= 0 || o.Exit.Signal != "")
}

// EndedAt returns when the command ended, if it ended between the two times, and now otherwise: the
// command may have ended while no daemon was running.
func (o *Outcome) EndedAt(since *time.Time, now time.Time) time.Time {
	if o.Exit != nil && since != nil && o.Exit.At.After(*since) && o.Exit.At.Before(now) {
		return o.Exit.At
	}
	return now
}

// RequestedDelay returns the delay that the work requests before its next attempt, 0 if it requests
// none. err is the reason why it failed.
func (o *Outcome) RequestedDelay(err error) time.Duration {
	if f, ok := errors.AsType[*AttemptError](err); ok && f.RetryAfter > 0 {
		return min(f.RetryAfter, maxRetryAfter)
	}
	return o.retryAfter
}

// EndedByCancel reports whether a run that has ended while a cancel was requested counts as
// cancelled, not as done.
func (r *Run) EndedByCancel() bool {
	return !r.outcome.EndedByItself() && (r.EndCause() != nil || r.outcome.Err != nil)
}

// Failure returns why a run failed that ended with err, or nil. It is partial if only items failed,
// which does not make the operation failed but which another attempt would do again.
func (r *Run) Failure(err error) (partial bool, failure error) {
	if err == nil {
		err = r.report.failedItems(r.def.FailWhen)
	}
	if err == nil {
		err = r.step.missingOutput(&r.report)
	}
	if err == nil && r.def.Work() == catalog.WorkItems && r.def.Retry.MaxAttempts != 1 {
		return true, r.report.failedItems(catalog.FailAny)
	}
	return err == nil, err
}

// DiskError returns the disk error (EIO or EROFS) of a write that the daemon made on behalf of the
// work: item results or the log.
func (r *Run) DiskError() error {
	err := r.report.writeError()
	if failed, ok := errors.AsType[*Error](r.EndCause()); ok && failed.Code == "log_failed" {
		err = errors.Join(err, failed.Err)
	}
	if errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("write what %s has done: %w", r.id, err)
	}
	return nil
}

// TakeExit records the artifacts of the work, the exit of its command and what its commands used.
// shared means that other runs may still add artifacts.
func (r *Run) TakeExit(rec *statefs.Record, shared bool) {
	dir, err := r.host.Owner.ArtifactsPath(r.id), fs.ErrExist
	switch {
	case r.hasNoArtifacts(rec):
		err = fs.ErrNotExist
	case !shared:
		err = syscall.Rmdir(dir) // it goes if it is empty
	}
	if rec.Artifacts = nil; err != nil && !errors.Is(err, fs.ErrNotExist) {
		rec.Artifacts = ListArtifacts(dir)
	}
	if exit := r.outcome.Exit; exit != nil {
		if exit.Code >= 0 {
			rec.ExitCode = &exit.Code
		}
		rec.Signal = exit.Signal
	}
	rec.Resources = r.Resources(rec.Resources)
}

// hasNoArtifacts reports whether it is certain that there is no folder of artifacts: the only run of the operation is
// that of a handler, which has asked for none.
func (r *Run) hasNoArtifacts(rec *statefs.Record) bool {
	return r.isHandler() && len(rec.Steps) == 0 && rec.Starts <= 1 && r.number == 1 && !r.artifacts.Load()
}

// Resources returns the usage of an operation including this run, given that of its earlier runs.
func (r *Run) Resources(earlier *statefs.ResourceUse) *statefs.ResourceUse {
	return r.usage.addTo(earlier)
}

// Forget tells the keepers that the end of the run is recorded, and removes its scratch folder.
func (r *Run) Forget() error {
	r.Acknowledge()
	return r.scratch.remove()
}

// maxArtifacts bounds how many artifacts the record and the footer name; the folder holds all of
// them.
const maxArtifacts = 1000

// ListArtifacts returns the names of the files in an artifact folder.
func ListArtifacts(dir string) []string {
	var names []string
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil //nolint:nilerr // a file that cannot be listed is not named and stays in the folder
		}
		if name, err := filepath.Rel(dir, path); err == nil {
			names = append(names, statefs.ArtifactName(filepath.ToSlash(name)))
		}
		if len(names) == maxArtifacts {
			return fs.SkipAll
		}
		return nil
	})
	slices.Sort(names)
	return names
}
