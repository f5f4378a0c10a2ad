package statefs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs/files"
)

// TestListAsksForNoName has strace(1) report every system call that names a file: a listing makes none for a file
// of jobs/.
func TestListAsksForNoName(t *testing.T) {
	t.Parallel()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(t.TempDir(), "storage")
	tree, err := Open(dir, Options{})
	check(t, err)
	defer func() { check(t, tree.Close()) }()
	const count = 20
	for n := range count {
		id, err := MakeID("other-thing", time.Now(), os.Getppid(), uint64(900_000+n))
		check(t, err)
		check(t, os.WriteFile(filepath.Join(tree.JobsDir(), MarkerName(id, Running)), nil, files.Mode))
	}
	calls := filepath.Join(t.TempDir(), "calls")
	child := exec.Command(strace, "-f", "-o", calls, "-s", "200", "-e", "trace=%file", os.Args[0], dir)
	child.Env = append(os.Environ(), childEnv+"=lists")
	out, err := child.CombinedOutput()
	traced, readErr := os.ReadFile(calls)
	if readErr != nil || !bytes.Contains(traced, []byte(filepath.Base(dir))) {
		t.Skipf("strace cannot trace here: %v, %s", err, out)
	}
	if err != nil || string(bytes.TrimSpace(out)) != "20" {
		t.Fatalf("the listing: %v, %s", err, out)
	}
	if n := bytes.Count(traced, []byte("other-thing")); n > 0 {
		t.Errorf("%d system calls name one of %d markers", n, count)
	}
}
