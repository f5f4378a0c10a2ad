package cli_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/jobdir/jobdir/cli"
	"github.com/jobdir/jobdir/client"
)

// The scripts in testdata use the program as a person does: the real binary, a real daemon, real files.

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		filteredProgram: runFiltered,
		"jobdir": func() {
			streams := cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
			os.Exit(cli.Main(context.Background(), os.Args[1:], streams, cli.Options{}))
		},
		handlerProgram: func() {
			streams := cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
			os.Exit(cli.Main(context.Background(), os.Args[1:], streams, cli.Options{Handlers: handlers}))
		},
	})
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			// A script is alone: no daemon and no file of the machine is found by default.
			env.Setenv("HOME", env.WorkDir)
			// A program with the race detector sleeps a second when it ends.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			env.Setenv("JOBDIR_JOURNAL_SEGMENT", "256KiB") // written at each start of a daemon
			env.Setenv("JOBDIR_STORAGE", filepath.Join(env.WorkDir, "storage"))
			env.Setenv("JOBDIR_JOBS", filepath.Join(env.WorkDir, "jobs"))
			env.Setenv("JOBDIR_LISTEN", "127.0.0.1:0")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":     exits,
			"setenv":    setenv,
			"waitready": waitReady,
			"waitfile":  waitFile,
			"waitgrep":  waitGrep,
			"waitls":    waitList,
			"waitlanes": waitLanes,
		},
	})
}

// exits runs a program and wants an exact exit code: exits CODE PROGRAM ARGS...
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d\nstdout: %s\nstderr: %s", got, want, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
}

// setenv puts the last output into a variable: setenv NAME stdout
func setenv(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: setenv NAME FILE")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile(args[1])))
}

// waitReady waits until the daemon of the script's storage is ready.
func waitReady(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: waitready")
	}
	c, err := client.New("unix:" + filepath.Join(ts.Getenv("JOBDIR_STORAGE"), "jobdir.sock"))
	ts.Check(err)
	defer c.Close()
	eventually(ts, "the daemon is ready", func() bool {
		health, err := c.Health(context.Background())
		return err == nil && health.Ready
	})
}

// waitFile waits until a pattern matches a file or, negated, until it matches none: waitfile PATTERN
func waitFile(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: [!] waitfile PATTERN")
	}
	eventually(ts, args[0], func() bool {
		found, err := filepath.Glob(ts.MkAbs(args[0]))
		ts.Check(err)
		return (len(found) > 0) != neg
	})
}

// waitGrep waits until a file has a line that matches: waitgrep PATTERN FILE
func waitGrep(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: waitgrep PATTERN FILE")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	eventually(ts, args[0]+" in "+args[1], func() bool {
		data, err := os.ReadFile(ts.MkAbs(args[1]))
		return err == nil && pattern.Match(data)
	})
}

// waitList waits until 'jobdir ls' shows what matches, or nothing that does: [!] waitls PATTERN
func waitList(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: [!] waitls PATTERN")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	eventually(ts, args[0]+" in the list", func() bool {
		ts.Check(ts.Exec("jobdir", "ls"))
		return pattern.MatchString(ts.ReadFile("stdout")) != neg
	})
}

// waitLanes waits until the output of 'jobdir lanes' matches: waitlanes PATTERN
func waitLanes(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: waitlanes PATTERN")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	eventually(ts, args[0]+" of the lanes", func() bool {
		ts.Check(ts.Exec("jobdir", "lanes"))
		return pattern.MatchString(ts.ReadFile("stdout")) || pattern.MatchString(ts.ReadFile("stderr"))
	})
}

// eventually polls until a condition holds. The deadline only ends a script that has failed.
func eventually(ts *testscript.TestScript, what string, holds func() bool) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(2 * time.Minute)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			ts.Fatalf("waited in vain: %s", what)
		}
	}
}
