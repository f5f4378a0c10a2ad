package statefs

import (
	"errors"
	"fmt"
	"os"
)

// JobsFolderReplacedError reports that jobs/ is no longer the folder that was opened: it was moved,
// replaced or mounted over. Files written by path go to the wrong folder then, so nothing is
// acknowledged.
type JobsFolderReplacedError struct {
	Dir string
	Err error // the failed lookup, nil if there is another folder
}

func (e *JobsFolderReplacedError) Error() string {
	const advice = "put the folder that was there back, or unmount what was mounted on it, then start the daemon again"
	if e.Err != nil {
		return fmt.Sprintf("folder %s is gone (%v): %s", e.Dir, e.Err, advice)
	}
	return fmt.Sprintf("folder %s was replaced by another one: %s", e.Dir, advice)
}

func (e *JobsFolderReplacedError) Unwrap() error { return e.Err }

// checkJobsFolder checks with two system calls that jobs/ is still the folder that was opened. The
// error is a *JobsFolderReplacedError.
func (t *Tree) checkJobsFolder() error {
	held, err := t.folder.Stat()
	if err != nil {
		return fmt.Errorf("look at %s: %w", t.JobsDir(), err)
	}
	named, err := os.Stat(t.JobsDir())
	if err != nil {
		return &JobsFolderReplacedError{t.JobsDir(), err}
	}
	if !os.SameFile(held, named) {
		return &JobsFolderReplacedError{Dir: t.JobsDir()}
	}
	return nil
}

// jobsFolderCause returns a *JobsFolderReplacedError instead of err if jobs/ was replaced.
func (t *Tree) jobsFolderCause(err error) error {
	if err == nil {
		return nil
	}
	if displaced, ok := errors.AsType[*JobsFolderReplacedError](t.checkJobsFolder()); ok {
		return displaced
	}
	return err
}
