package jobsexample_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The README of an example with tools of its own has one block "sh", which ends with the line that starts the daemon, and blocks "console" of
// what is typed meanwhile, with what it prints. All of it is typed here, in the folder of the example.
func TestReadmesOfExamplesAreWhatHappens(t *testing.T) {
	t.Parallel()
	for _, example := range []string{"parse", "curator"} {
		t.Run(example, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(example, "README.md")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			before := string(text)
			after := typeAll(t, example, before)
			if *update {
				write(t, path, after)
				return
			}
			if got, want := exact(before), exact(after); got != want {
				t.Errorf("%s says\n%s\nbut this happened; run the test with -update\n%s", path, before, after)
			}
		})
	}
}

var (
	serveBlock   = regexp.MustCompile("(?s)```sh\n(.*\n)?(.*jobdir serve[^\n]*)\n```")
	consoleBlock = regexp.MustCompile("(?s)```console\n(.*?)```")
)

// typeAll returns the text with the output of its commands as it is now.
func typeAll(t *testing.T, dir, text string) string {
	t.Helper()
	s := serveExample(t, dir, text)
	var lines []string
	for _, block := range consoleBlock.FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(block[1]) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				lines = append(lines, strings.TrimSuffix(command, "\n"))
			}
		}
	}
	printed := s.shell(dir, lines)
	return consoleBlock.ReplaceAllStringFunc(text, func(block string) string {
		var out strings.Builder
		out.WriteString("```console\n")
		for line := range strings.Lines(block) {
			if strings.HasPrefix(line, "$ ") {
				out.WriteString(line + printed[0])
				printed = printed[1:]
			}
		}
		return out.String() + "```"
	})
}

// serveExample starts the daemon of an example as its README does, on a new storage.
func serveExample(t *testing.T, dir, readme string) *stage {
	t.Helper()
	serve := serveBlock.FindStringSubmatch(readme)
	if serve == nil {
		t.Fatal("no block of the README starts the daemon")
	}
	bin, storage := program(t), filepath.Join(t.TempDir(), "storage")
	s := &stage{t: t, dir: storage}
	s.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "JOBDIR_STORAGE="+storage, "JOBDIR_LISTEN=127.0.0.1:0",
		"JOBDIR_ON_STOP=interrupt", // also when the test fails in the middle
		"LIBRARY="+t.TempDir(), "LC_ALL=C", "SEED=0")
	s.daemon = exec.Command("sh", "-c", serve[1]+"exec "+serve[2])
	s.daemon.Dir, s.daemon.Env = dir, s.env
	s.serve()
	return s
}

// shell types lines into one shell, so that variables stay, and returns what each of them printed.
func (s *stage) shell(dir string, lines []string) []string {
	s.t.Helper()
	const mark = "\x01"
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-u", "-c", strings.Join(lines, "\nprintf '\\001'\n"))
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, s.env, 5*time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		s.t.Fatalf("%v\n%s", err, out.String())
	}
	printed := strings.Split(out.String(), mark)
	if len(printed) != len(lines) {
		s.t.Fatalf("%d lines were typed, %d have an answer\n%s", len(lines), len(printed), out.String())
	}
	return printed
}

// exact takes out what is another in each run: IDs, times, and the width of the columns that they are in.
func exact(text string) string {
	text = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?`).ReplaceAllString(general(text), "DATE TIME")
	return regexp.MustCompile(`(\S) {2,}`).ReplaceAllString(text, "$1  ")
}
