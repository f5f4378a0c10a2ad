package statefs

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
)

// A checkpoint without a free descriptor syncs the file system as a whole: a daemon with few descriptors neither ends
// nor leaves its files behind the journal.
func TestCheckpointWithoutDescriptors(t *testing.T) { //nolint:paralleltest // the limit is that of the process
	tree, err := Open(filepath.Join(t.TempDir(), "storage"), Options{})
	check(t, err)
	owner, err := Own(tree)
	check(t, err)
	rec := submit(t, tree)
	var limit syscall.Rlimit
	check(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	check(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: limit.Max}))
	err = owner.Journal.syncFiles([]string{rec.ID.text})
	check(t, errors.Join(err, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)))
	check(t, errors.Join(owner.Release(), tree.Close()))
}
