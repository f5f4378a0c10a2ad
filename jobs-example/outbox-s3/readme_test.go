package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite what README.md shows from this run")

var consoleBlock = regexp.MustCompile("(?s)```console\n(.*?)```")

// All that README.md shows under "Try it" is typed here, into one shell.
func TestReadmeIsWhatHappens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	storage := filepath.Join(t.TempDir(), "storage")
	if _, err := goBuild("event", filepath.Join(programs, "event")); err != nil {
		t.Fatal(err)
	}
	env := append(w.env(), "JOBDIR_STORAGE="+storage)
	newDaemon(t, env)
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```sh\njobdir serve --jobs .\n```") {
		t.Error("the README starts the daemon in another way than this test")
	}
	typed := typeAll(t, string(page), append(env, "PATH="+programs+":"+os.Getenv("PATH"), "LC_ALL=C"))
	switch {
	case *update:
		if err := os.WriteFile("README.md", []byte(typed), 0o644); err != nil {
			t.Fatal(err)
		}
	case general(typed) != general(string(page)):
		t.Errorf("README.md is not what happened; run the test with -update\n%s", typed)
	}
}

// typeAll returns the page with the output of its commands as it is now.
func typeAll(t *testing.T, page string, env []string) string {
	t.Helper()
	const mark = "\x01"
	var script strings.Builder
	for _, block := range consoleBlock.FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(block[1]) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				script.WriteString(command + "printf '\\001'\n")
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), testPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-eu", "-c", script.String())
	cmd.Env, cmd.SysProcAttr, cmd.WaitDelay = append(os.Environ(), env...),
		&syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}, time.Second
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	printed := strings.Split(out.String(), mark)
	return consoleBlock.ReplaceAllStringFunc(page, func(block string) string {
		var text strings.Builder
		text.WriteString("```console\n")
		for line := range strings.Lines(block) {
			if strings.HasPrefix(line, "$ ") {
				text.WriteString(line + printed[0])
				printed = printed[1:]
			}
		}
		return text.String() + "```"
	})
}

// general makes two runs comparable: it takes out what is another in each.
func general(text string) string {
	for from, to := range map[string]string{
		`_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_p\d+_r\d+`: "_DATE_TIME_pPID_rN", `\d{4}-\d\d-\d\dT[\d:.]+Z`: "TIME",
		`127\.0\.0\.1:\d+`: "ADDRESS",
	} {
		text = regexp.MustCompile(from).ReplaceAllString(text, to)
	}
	return text
}
