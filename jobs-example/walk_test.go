package jobsexample_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The README of an example with its own tools has a block "sh", which ends with the line that starts the
// daemon, and blocks "console" of commands with their output. The test runs all of them in the folder of the
// example.
func TestReadmesOfExamplesAreWhatHappens(t *testing.T) {
	t.Parallel()
	for _, example := range []string{"parse", "curator"} {
		t.Run(example, func(t *testing.T) {
			t.Parallel()
			text, path := readme(t, example)
			s := serveExample(t, example, text)
			compareOrUpdate(t, path, text, s.typeAll(example, text))
		})
	}
}

func readme(t *testing.T, example string) (text, path string) {
	t.Helper()
	path = filepath.Join(example, "README.md")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data), path
}

// compareOrUpdate holds a page against what happened when it was typed.
func compareOrUpdate(t *testing.T, path, before, after string) {
	t.Helper()
	if *update {
		write(t, path, after)
		return
	}
	if got, want := exact(before), exact(after); got != want {
		t.Errorf("%s says\n%s\nbut this happened; run the test with -update\n%s", path, before, after)
	}
}

var (
	serveBlock   = regexp.MustCompile("```sh\n((?:[^`]*\n)?)([^`\n]*jobdir serve[^\n]*)\n```")
	consoleBlock = regexp.MustCompile("(?s)```console\n(.*?)```")
)

// typeAll returns the text with the output of its commands as it is now.
func (s *stage) typeAll(dir, text string) string {
	s.t.Helper()
	window := s.terminal(dir)
	return consoleBlock.ReplaceAllStringFunc(text, func(block string) string {
		return window.typeBlock(block)
	})
}

// typeBlock types the lines of a block "console", and returns it with what they print.
func (w *terminal) typeBlock(block string) string {
	w.t.Helper()
	var out strings.Builder
	out.WriteString("```console\n")
	for line := range strings.Lines(block) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			out.WriteString(line + w.enter(strings.TrimSuffix(command, "\n")))
		}
	}
	return out.String() + "```"
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
	s.daemon = s.command(dir, serve[1]+"exec "+serve[2])
	s.serve()
	return s
}

func (s *stage) command(dir, script string) *exec.Cmd {
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir, cmd.Env = dir, s.env
	return cmd
}

// shell types lines into one shell and returns what each of them printed.
func (s *stage) shell(dir string, lines []string) []string {
	s.t.Helper()
	window := s.terminal(dir)
	printed := make([]string, len(lines))
	for i, line := range lines {
		printed[i] = window.enter(line)
	}
	return printed
}

// exact takes out what is another in each run: IDs, times, and the width of the columns that they are in.
func exact(text string) string {
	text = regexp.MustCompile(`(?m)(\s)[\d.]+(ms|s)(\s|$)`).ReplaceAllString(text, "${1}SECONDS$3")
	text = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?`).ReplaceAllString(general(text), "DATE TIME")
	return regexp.MustCompile(`(\S) {2,}`).ReplaceAllString(text, "$1  ")
}
