package jobsexample_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/jobdir/jobdir/cli"
	"github.com/jobdir/jobdir/client"
	jobsexample "github.com/jobdir/jobdir/jobs-example"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if built.dir != "" {
			code = max(code, exitCode(os.RemoveAll(built.dir)))
		}
		os.Exit(code)
	}))
}

func exitCode(err error) int {
	if err != nil {
		return 1
	}
	return 0
}

// built is the program as a whole, for the tests that need a process.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// program returns the folder in which the program jobdir is.
func program(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "jobdir-program"); built.err != nil { //nolint:usetesting // it outlives the test that needs it first
			return
		}
		cmd := exec.Command("go", "build", "-trimpath", "-o", built.dir+"/jobdir", "..")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build, whose compiled packages it finds in the cache
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir
}

// patience bounds every wait of these tests; nothing depends on its length.
const patience = 60 * time.Second

// storage is a whole daemon with the example jobs on a directory of its own, and a client of it.
type storage struct {
	*client.Client
	t   *testing.T
	dir string
}

func start(t *testing.T) *storage {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "storage")
	ctx, stop := context.WithCancel(context.Background())
	serving, ended := make(chan cli.Serving, 1), make(chan error, 1)
	go func() {
		ended <- cli.Serve(ctx, cli.ServeConfig{
			Storage: dir, Definitions: jobsexample.Definitions(), Handlers: jobsexample.Handlers(),
			Durability: statefs.Process, Serving: func(s cli.Serving) { serving <- s },
		})
	}()
	var at cli.Serving
	select {
	case at = <-serving:
	case err := <-ended:
		stop()
		t.Fatalf("the daemon did not start: %v", err)
	}
	c, err := client.New("unix:" + at.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		stop()
		if err := <-ended; err != nil {
			t.Errorf("daemon: %v", err)
		}
	})
	return &storage{c, t, dir}
}

// footer is what the examples put into the footer.
type footer struct {
	Result         string
	State          string
	Total          *int
	Processed      int
	Failed         int
	ProcessedFiles []entry `json:"processed_files"`
	FailedFiles    []entry `json:"failed_files"`
	Artifacts      []string

	Bytes       int64
	Steps       int
	SecondsEach float64 `json:"seconds_each"`
}

type entry struct {
	Filename        string
	SizeBytes       int64 `json:"size_bytes"`
	SHA256          string
	CompressedBytes int64 `json:"compressed_bytes"`
	Error           string
}

func (s *storage) submit(group, job string, params map[string]any) statefs.ID {
	s.t.Helper()
	op, err := s.Submit(s.t.Context(), group, job, params)
	if err != nil {
		s.t.Fatal(err)
	}
	return op.ID
}

// follow reads the whole stream of an operation, to its end.
func (s *storage) follow(id statefs.ID) (text string, f footer) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	var raw bytes.Buffer
	end, err := s.FollowRaw(ctx, id, 0, &raw)
	if err != nil {
		s.t.Fatalf("%v\n%s", err, raw.String())
	}
	if err := json.Unmarshal(end.Raw, &f); err != nil {
		s.t.Fatal(err)
	}
	return raw.String(), f
}

// ask makes a request and returns when it took effect.
func (s *storage) ask(id statefs.ID, ask statefs.Action) {
	s.t.Helper()
	answer, err := s.Request(s.t.Context(), id, ask, patience)
	if err != nil {
		s.t.Fatal(err)
	}
	if answer.TookEffect == nil || !*answer.TookEffect {
		s.t.Fatalf("%s did not take effect: %+v", ask, answer)
	}
}

func (s *storage) day(id statefs.ID) string { return filepath.Join(s.dir, "operations", id.Day()) }

// await returns when a file of that name is in a folder.
func await(t *testing.T, folder, name string) {
	t.Helper()
	changes, err := watch.OpenDir(folder, func(name string) (string, bool) { return name, true }, watch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- changes.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("watch %s: %v", folder, err)
		}
	}()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		if _, err := os.Lstat(filepath.Join(folder, name)); err == nil {
			return
		}
		select {
		case <-changes.Ready():
			changes.Take()
		case <-deadline.C:
			t.Fatalf("waited in vain for %s in %s", name, folder)
		}
	}
}

// write makes a file and the folders above it.
func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o640); err != nil {
		t.Fatal(err)
	}
}

// logOf cuts the log out of a stream.
func logOf(t *testing.T, text string) []string {
	t.Helper()
	_, rest, ok := strings.Cut(text, "<log>\n")
	log, _, ok2 := strings.Cut(rest, "</log>\n")
	if !ok || !ok2 {
		t.Fatalf("no log in\n%s", text)
	}
	return strings.Split(strings.TrimSuffix(log, "\n"), "\n")
}
