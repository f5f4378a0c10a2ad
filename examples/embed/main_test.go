package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The program is built and run as its user would, and used over HTTP.
func TestEmbeddedDaemonStreamsAnOperation(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "embed")
	cmd := exec.Command("go", "build", "-trimpath", "-o", program, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build, whose compiled packages it finds in the cache
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	address, stop := start(t, program, filepath.Join(t.TempDir(), "storage"))

	resp, err := http.Get(address + "/demo/greet?names=Ada,,Grace")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	text := string(body)
	for _, want := range []string{
		"<start_json>\n", `"total": 3}`, "<log>\n[ 1 / 3 ] Processing 'Ada'...\n  Hello, Ada!\n",
		"  FAIL: the name is empty\n",
		"[ 3 / 3 ] Processing 'Grace'...\n", "</log>\n<end_json>\n", `"result": "partial"`, `"greeted": 3`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the stream lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
	again(t, address, text)
	stop()
}

// again reads the operation of a stream a second time, by its ID.
func again(t *testing.T, address, text string) {
	t.Helper()
	_, rest, _ := strings.Cut(text, `{"id": "`)
	id, _, found := strings.Cut(rest, `"`)
	if !found {
		t.Fatalf("no ID in the stream:\n%s", text)
	}
	resp, err := http.Get(address + "/api/v1/operations/" + id + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	late, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if string(late) != text {
		t.Errorf("the late stream differs from the live one:\n%s\nlive:\n%s", late, text)
	}
}

// start runs the program until it serves. stop ends it with SIGTERM and wants exit code 0.
func start(t *testing.T, program, storage string) (address string, stop func()) {
	t.Helper()
	cmd := exec.Command(program, "-storage", storage, "-listen", "127.0.0.1:0")
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end := func(signal os.Signal) error {
		if ended {
			return nil
		}
		ended = true
		if err := cmd.Process.Signal(signal); err != nil {
			return err
		}
		watchdog := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Signal(syscall.SIGKILL) })
		defer watchdog.Stop()
		return cmd.Wait()
	}
	t.Cleanup(func() { _ = end(syscall.SIGKILL) })
	line, err := bufio.NewReader(out).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "serving ")
	if err != nil || !ok {
		_ = end(syscall.SIGKILL)
		t.Fatalf("the program does not serve: %q, %v\n%s", line, err, log.String())
	}
	return address, func() {
		if err := end(syscall.SIGTERM); err != nil {
			t.Errorf("after SIGTERM: %v\n%s", err, log.String())
		}
	}
}
