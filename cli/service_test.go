package cli_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/cli"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

const helloYAML = "group: g\nname: hello\nparams: {n: {type: integer, default: 2}}\nhandler: hello\n"

func hello(_ context.Context, op *work.Op) error {
	op.Logf("hello from run %d", op.RunNumber())
	return op.Result("greeting", "hello")
}

// serving runs a daemon in this process. end stops it and returns what Serve returned.
func serving(t *testing.T, config cli.ServeConfig) (where cli.Serving, end func() error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ready, done := make(chan cli.Serving, 1), make(chan error, 1)
	config.Serving = func(s cli.Serving) { ready <- s }
	go func() { done <- cli.Serve(ctx, config) }()
	end = func() error {
		stop()
		select {
		case err := <-done:
			return err
		case <-time.After(2 * time.Minute):
			return errors.New("Serve does not return")
		}
	}
	select {
	case where = <-ready:
	case err := <-done:
		stop()
		t.Fatalf("Serve: %v", err)
	case <-time.After(2 * time.Minute):
		stop()
		t.Fatal("the daemon does not serve")
	}
	return where, end
}

// This test is not parallel, because it counts all goroutines.
//
//nolint:paralleltest // see above
func TestServeAsALibrary(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	config := cli.ServeConfig{
		Storage:     filepath.Join(t.TempDir(), "storage"),
		Listen:      []string{"127.0.0.1:0"},
		Definitions: []catalog.Source{{Name: "hello.yaml", YAML: []byte(helloYAML)}},
		Handlers:    work.Handlers{"hello": {Run: hello, Total: func(p catalog.Params) *int64 { return new(int64(7)) }}},
	}
	where, end := serving(t, config)
	if where.Jobs != 1 || len(where.Addresses) != 1 || where.Storage != config.Storage {
		t.Errorf("serving %+v", where)
	}
	for _, address := range []string{where.Addresses[0], "unix:" + where.Socket} {
		c, err := client.New(address)
		if err != nil {
			t.Fatal(err)
		}
		op, err := c.Submit(t.Context(), "g", "hello", map[string]int{"n": 3})
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		footer, err := c.FollowRaw(t.Context(), op.ID, 0, &log)
		if err != nil {
			t.Fatal(err)
		}
		if footer.Result != statefs.Success || !strings.Contains(string(footer.Raw), `"greeting"`) ||
			!strings.Contains(log.String(), `"total": 7`) {
			t.Errorf("footer %s, stream %s", footer.Raw, log.String())
		}
		c.Close()
	}
	second := cli.Serve(t.Context(), config)
	if locked, ok := errors.AsType[*statefs.LockedError](second); !ok || locked.PID != os.Getpid() {
		t.Errorf("a second daemon: %v", second)
	}
	if err := end(); err != nil {
		t.Errorf("Serve returned %v", err)
	}
}

func TestServeRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*cli.ServeConfig)
		want   string
	}{
		{
			"an address for everybody", func(c *cli.ServeConfig) { c.Listen = []string{"0.0.0.0:0"} },
			"other machines can reach that address",
		},
		{"no address", func(c *cli.ServeConfig) { c.Listen = []string{"nowhere"} }, "neither HOST:PORT"},
		{
			"a folder that is not there", func(c *cli.ServeConfig) { c.Jobs = []string{"/nowhere/at/all"} },
			"no folder of job definitions",
		},
		{"a storage that cannot be", func(c *cli.ServeConfig) { c.Storage = "/proc/self/nothing" }, "/proc/self/nothing"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			config := cli.ServeConfig{Storage: filepath.Join(t.TempDir(), "storage")}
			test.change(&config)
			ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
			defer stop()
			if err := cli.Serve(ctx, config); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// A change in a folder that did not exist when the daemon started is noticed, and a path of any length can be used.
func TestDefinitionsAreReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	jobs := filepath.Join(dir, "jobs")
	storage := filepath.Join(dir, strings.Repeat("long/", 40), "storage")
	if err := errors.Join(os.MkdirAll(jobs, 0o750), os.MkdirAll(filepath.Dir(storage), 0o750)); err != nil {
		t.Fatal(err)
	}
	where, end := serving(t, cli.ServeConfig{
		Storage: storage, Jobs: []string{jobs},
		Handlers: work.Handlers{"hello": {Run: hello}},
	})
	c, err := client.New("unix:" + where.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(jobs, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	names := func(want ...string) func() bool {
		return func() bool {
			all, err := c.Jobs(t.Context())
			var got []string
			for _, j := range all {
				got = append(got, j.Address()+" "+j.Summary)
			}
			return err == nil && strings.Join(got, ",") == strings.Join(want, ",")
		}
	}
	write("a/b/hello.yaml", helloYAML)
	until(t, "the new job is there", names("g/hello "))
	write("a/b/hello.yaml", helloYAML+"summary: Better\n")
	until(t, "the job has changed", names("g/hello Better"))
	write("a/b/hello.yaml", "nonsense")
	write("c.yaml", strings.ReplaceAll(helloYAML, "name: hello", "name: other"))
	until(t, "the last good version is kept beside a new one", names("g/hello Better", "g/other "))
	if err := os.RemoveAll(filepath.Join(jobs, "a")); err != nil {
		t.Fatal(err)
	}
	until(t, "the job is gone with its folder", names("g/other "))
	if err := end(); err != nil {
		t.Errorf("Serve returned %v", err)
	}
}

// until polls until a condition holds; the deadline only ends a test that has failed.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(2 * time.Minute)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
