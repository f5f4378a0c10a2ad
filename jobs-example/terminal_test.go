package jobsexample_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// terminal is one shell in which a person types, so that variables stay.
type terminal struct {
	t       *testing.T
	lines   *os.File
	printed *bufio.Reader
}

// mark is what the shell writes when a line has ended.
const mark = 1

// terminal opens a shell in a folder, with the environment of the stage. It ends with the test.
func (s *stage) terminal(dir string) *terminal {
	t := s.t
	t.Helper()
	read, lines, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	printed, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	cmd := exec.CommandContext(ctx, "sh", "-u", "-c",
		`while IFS= read -r line <&3; do eval "$line" 3<&-; printf '\001'; done`)
	cmd.Dir, cmd.Env, cmd.WaitDelay, cmd.ExtraFiles = dir, s.env, 5*time.Second, []*os.File{read}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = lines.Close()
		_ = cmd.Wait() // what its last line came to does not matter
		cancel()
		_ = printed.Close()
	})
	return &terminal{t, lines, bufio.NewReader(printed)}
}

// enter types a line and returns what it printed.
func (w *terminal) enter(line string) string {
	w.t.Helper()
	if _, err := fmt.Fprintln(w.lines, line); err != nil {
		w.t.Fatalf("%s: %v", line, err)
	}
	text, err := w.printed.ReadString(mark)
	if err != nil {
		w.t.Fatalf("%s: %v\n%s", line, err, text)
	}
	return strings.TrimSuffix(text, string(rune(mark)))
}
