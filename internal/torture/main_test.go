package torture

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
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

// figures are what the full run counted, for docs/reliability.md.
var figures report

type report struct {
	mu   sync.Mutex
	rows []figure
}

type figure struct {
	Test   string `json:"test"`
	What   string `json:"what"`
	Number int    `json:"number"`
}

// add notes a count under the name of its test.
func (r *report) add(t *testing.T, what string, number int) {
	t.Helper()
	t.Logf("%d %s", number, what)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, figure{t.Name(), what, number})
}

// write prints the figures as a table and writes them to the file that JOBDIR_TORTURE_JSON names.
func (r *report) write() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortStableFunc(r.rows, func(a, b figure) int { return strings.Compare(a.Test, b.Test) })
	for _, row := range r.rows {
		fmt.Printf("%-40s %9d  %s\n", row.Test, row.Number, row.What)
	}
	name := os.Getenv("JOBDIR_TORTURE_JSON")
	if name == "" {
		return nil
	}
	data, err := json.MarshalIndent(struct {
		At      time.Time `json:"at"`
		Machine string    `json:"machine"`
		Rows    []figure  `json:"figures"`
	}{time.Now().UTC().Truncate(time.Second), machine(), r.rows}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(data, '\n'), 0o600)
}

// machine says where the figures were taken.
func machine() string {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%s/%s, %d processors, kernel %s, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), bytes.TrimSpace(kernel), runtime.Version())
}
