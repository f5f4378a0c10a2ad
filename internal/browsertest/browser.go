// Package browsertest lets tests use a page as a person does: in a real headless browser, with its mouse and
// its keyboard.
//
//	test ── Page.Click, Press, Wait ──▶ conn ── DevTools protocol over two pipes ──▶ chromium
//	                                     ◀── answers, and what each page complains of ──┘
//
// One browser serves all tests below the test that started it; each page has a new profile. No wait depends on
// a duration: Wait checks its condition whenever the page changes. A test is skipped if the browser is
// missing; the message names it.
//
// Every failure ends the test. If the browser dies, every page fails with the last lines of its output.
package browsertest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// patience is how long a test waits for what must come. It bounds a failure; nothing takes as long.
const patience = 3 * time.Minute

// programs are the browsers that are looked for on PATH, the lightest first.
var programs = []string{"chromium-headless-shell", "chromium", "google-chrome", "google-chrome-stable"}

// Browser is a browser that runs. Its methods may be called by several tests at once.
type Browser struct {
	conn    *conn
	cmd     *exec.Cmd
	written *lastLines
}

// Start runs a browser until the test, and all tests below it, have ended. It skips the test if the machine
// has no browser, or if the browser exits before it shows a page, for example because it is only half installed.
func Start(t *testing.T) *Browser {
	t.Helper()
	program := ""
	for _, name := range programs {
		if found, err := exec.LookPath(name); err == nil {
			program = found
			break
		}
	}
	if program == "" {
		t.Skipf("no browser on PATH: looked for %v; make setup-all installs Debian's chromium-headless-shell as root, 'apt-get install chromium' is another", programs)
	}
	profile, err := os.MkdirTemp("", "browsertest") //nolint:usetesting // a browser may write there for a moment after it ended, which must not fail the test
	if err != nil {
		t.Fatal(err)
	}
	b := &Browser{written: new(lastLines)}
	t.Cleanup(func() { _ = os.RemoveAll(profile) })
	toBrowser, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	back, fromBrowser, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	b.cmd = exec.Command(program, flags(profile)...)
	b.cmd.ExtraFiles = []*os.File{toBrowser, fromBrowser} // descriptors 3 and 4, as the protocol has it
	b.cmd.Stderr = b.written
	b.cmd.WaitDelay = 5 * time.Second // a process of the browser that outlives it may have stderr
	err = b.cmd.Start()
	_, _ = toBrowser.Close(), fromBrowser.Close() // the browser has them
	if err != nil {
		t.Fatalf("start %s: %v", program, err)
	}
	b.conn = newConn(ours, back)
	t.Cleanup(b.stop)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := b.conn.call(ctx, "", "Browser.getVersion", nil, nil); errors.Is(err, errBrowserGone) {
		t.Skipf("%s cannot run on this machine: install it again, or what it misses; it says: %s", program, b.written)
	} else if err != nil {
		t.Fatalf("%s does not answer: %v\n%s", program, err, b.written)
	}
	return b
}

// flags are the flags for a headless browser that opens no prompts and does not throttle pages in the
// background.
func flags(profile string) []string {
	return []string{
		// The pages are those of the tests. A sandbox needs what root and many containers have not.
		"--no-sandbox",
		"--headless", "--remote-debugging-pipe", "--user-data-dir=" + profile,
		"--no-first-run", "--no-default-browser-check", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server",
		"--host-resolver-rules=MAP *.test 127.0.0.1", // sites with names of their own
		"--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--disable-extensions",
		"--disable-sync", "--mute-audio",
		"--disable-background-timer-throttling", "--disable-backgrounding-occluded-windows",
		"--disable-renderer-backgrounding",
		"--force-color-profile=srgb", "--lang=en-US", "about:blank",
	}
}

// stop ends the browser and waits until it has.
func (b *Browser) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_ = b.conn.call(ctx, "", "Browser.close", nil, nil) // it may be gone
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = b.cmd.Wait() // what it says of its own end says nothing of the tests
	}()
	b.conn.closeWriter()
	select {
	case <-ended:
	case <-ctx.Done():
		_ = b.cmd.Process.Kill() // it may have ended
		<-ended
	}
	b.conn.close()
}

// lastLines keeps the end of what is written to it.
type lastLines struct {
	mu   sync.Mutex
	text []byte
}

func (l *lastLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = 8 << 10
	l.text = append(l.text, p...)
	if extra := len(l.text) - most; extra > 0 {
		l.text = bytes.Clone(l.text[extra:])
	}
	return len(p), nil
}

func (l *lastLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}
