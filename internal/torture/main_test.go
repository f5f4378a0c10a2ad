package torture

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// full runs the full counts.
var full = os.Getenv("JOBDIR_TORTURE") == "full"

// scaled is a count: the first in the short form, the second in the full one.
func scaled(short, long int) int {
	if full {
		return long
	}
	return short
}

func TestMain(m *testing.M) {
	if run, ok := children[os.Getenv(childEnv)]; ok {
		if err := run(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if code == 0 && full {
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

// childEnv makes the test binary one of the other processes of a test.
const childEnv = "JOBDIR_TORTURE_CHILD"

// children are what the test binary can be.
var children = map[string]func(args []string) error{}

// built is the binary under test.
var built struct {
	once sync.Once
	dir  string
	path string
	err  error
}

// binary builds the program as it ships and returns its path.
func binary(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		//nolint:usetesting // it outlives the test that builds it
		if built.dir, built.err = os.MkdirTemp("", "jobdir-torture"); built.err != nil {
			return
		}
		built.path = filepath.Join(built.dir, "jobdir")
		out, err := exec.Command("go", "build", "-o", built.path, "github.com/jobdir/jobdir").CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("build the binary: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}
