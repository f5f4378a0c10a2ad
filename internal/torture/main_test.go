package torture

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/jobdir/jobdir/internal/prooftest"
)

func TestMain(m *testing.M) {
	if run, ok := children[os.Getenv(childEnv)]; ok {
		if err := run(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv("JOBDIR_JOURNAL_SEGMENT") == "" {
		// Each of hundreds of daemons begins with two segments, and smaller ones have more checkpoints.
		_ = os.Setenv("JOBDIR_JOURNAL_SEGMENT", "256KiB")
	}
	code := m.Run()
	if code == 0 && prooftest.Full() {
		if err := figures.write(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if built.dir != "" {
		_ = os.RemoveAll(built.dir) // in the folder for temporary files
	}
	os.Exit(code)
}

// childEnv selects the process that the test binary plays in a test.
const childEnv = "JOBDIR_TORTURE_CHILD"

// children are the processes that the test binary can play.
var children = map[string]func(args []string) error{}

// built is the binary under test.
var built struct {
	once sync.Once
	dir  string
	path string
	err  error
}

// binary builds the program as it is released and returns its path.
func binary(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		//nolint:usetesting // it outlives the test that builds it
		if built.dir, built.err = os.MkdirTemp("", "jobdir-torture"); built.err != nil {
			return
		}
		built.path = filepath.Join(built.dir, "jobdir")
		cmd := exec.Command("go", "build", "-trimpath", "-o", built.path, "github.com/jobdir/jobdir")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // the same settings as make build, so that its build cache is used
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("build the binary: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}
