package statefs

import (
	"errors"
	"fmt"
	"os"
)

// DisplacedError says that jobs/ is not the folder any more that was opened: it was moved, replaced, or something was mounted on it.
// What is written by path goes to the wrong folder then, so nothing is acknowledged.
type DisplacedError struct {
	Dir string
	Err error // the failed look-up, nil when there is another folder
}

func (e *DisplacedError) Error() string {
	const advice = "put the folder that was there back, or unmount what was mounted on it, then start the daemon again"
	if e.Err != nil {
		return fmt.Sprintf("folder %s is gone (%v): %s", e.Dir, e.Err, advice)
	}
	return fmt.Sprintf("folder %s was replaced by another one: %s", e.Dir, advice)
}

func (e *DisplacedError) Unwrap() error { return e.Err }

// inPlace reports that jobs/ is still the folder that was opened, by two system calls. The error is a *DisplacedError.
func (t *Tree) inPlace() error {
	held, err := t.folder.Stat()
	if err != nil {
		return fmt.Errorf("look at %s: %w", t.JobsDir(), err)
	}
	named, err := os.Stat(t.JobsDir())
	if err != nil {
		return &DisplacedError{t.JobsDir(), err}
	}
	if !os.SameFile(held, named) {
		return &DisplacedError{Dir: t.JobsDir()}
	}
	return nil
}

// displacedBy returns the displacement of jobs/ as the reason of err, when that is what is behind it.
func (t *Tree) displacedBy(err error) error {
	if err == nil {
		return nil
	}
	if displaced, ok := errors.AsType[*DisplacedError](t.inPlace()); ok {
		return displaced
	}
	return err
}
