package main

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// testPatience bounds every wait of these tests; nothing depends on its length.
const testPatience = 2 * time.Minute

// Test credentials of servers that listen on loopback and end with the test.
const (
	testKey    = "jobdirtest"
	testSecret = "jobdirtestsecret"
)

// build is a program that is built when the first test needs it.
type build struct {
	once sync.Once
	path string
	err  error
}

func (b *build) get(program func() (string, error)) (string, error) {
	b.once.Do(func() { b.path, b.err = program() })
	return b.path, b.err
}

var worked build

var programs string // folder of what is built for one run of the tests

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "outbox-s3")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	programs = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// program is the worker itself.
func program(t *testing.T) string {
	t.Helper()
	path, err := worked.get(func() (string, error) { return goBuild(".", filepath.Join(programs, "outbox-s3")) })
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func goBuild(dir, to string) (string, error) {
	cmd := exec.Command("go", "build", "-trimpath", "-o", to, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build, whose compiled packages it finds in the cache
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build in %s: %w\n%s", dir, err, out)
	}
	return to, nil
}

// mongoServer is the server of ./testserver, which make setup-all builds and keeps in the user's cache, under the
// hash of its sources. It takes a minute, which no test waits for.
func mongoServer(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	sum := sha256.New()
	for _, name := range []string{"main.go", "go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join("testserver", name))
		if err != nil {
			t.Fatal(err)
		}
		sum.Write(text)
	}
	path := filepath.Join(cache, "jobdir-tests", "testserver-"+hex.EncodeToString(sum.Sum(nil)[:8]))
	if _, err := os.Stat(path); err != nil {
		t.Skipf("there is no server that speaks the protocol of MongoDB; make setup-all builds FerretDB: %v", err)
	}
	return path
}

// s3Server is the program versitygw, from PATH or where go install puts it.
func s3Server(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("versitygw"); err == nil {
		return path
	}
	if out, err := exec.Command("go", "env", "GOBIN", "GOPATH").Output(); err == nil {
		bin, paths, _ := strings.Cut(strings.TrimRight(string(out), "\n"), "\n")
		path := filepath.Join(cmp.Or(bin, filepath.Join(filepath.SplitList(paths)[0], "bin")), "versitygw")
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Skip("there is no S3 server: versitygw is neither in PATH nor in $(go env GOPATH)/bin. Install it with: go install -ldflags='-s -w' github.com/versity/versitygw/cmd/versitygw@v1.8.0")
	return ""
}

// server is one of the two servers, a process that can be ended and started again where it was.
type server struct {
	t     *testing.T
	addr  string
	start func() *exec.Cmd
	ready func(cmd *exec.Cmd, out io.Reader) error
	cmd   *exec.Cmd
	said  bytes.Buffer // on standard error, since it was started last
}

// address returns one of loopback that the test has until it ends: a socket that does not listen keeps the port from
// all programs but the server that names it, also while that is down.
func address(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	in, is := name.(*syscall.SockaddrInet4)
	if !is {
		t.Fatalf("the socket is bound to %v", name)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(in.Port))
}

// newMongo makes a MongoDB server over a new folder. It does not run yet.
func newMongo(t *testing.T) *server {
	t.Helper()
	bin, dir := mongoServer(t), t.TempDir()
	s := &server{t: t, addr: address(t)}
	s.start = func() *exec.Cmd { return exec.Command(bin, s.addr, dir) }
	s.ready = func(_ *exec.Cmd, out io.Reader) error {
		line, err := bufio.NewReader(out).ReadString('\n')
		if !strings.HasPrefix(line, "testserver: serving") {
			return fmt.Errorf("the server said %q: %w", line, err)
		}
		return nil
	}
	t.Cleanup(func() { s.end(syscall.SIGKILL) })
	return s
}

// newS3 makes an S3 server over a new folder, with the buckets. It does not run yet.
func newS3(t *testing.T, buckets ...string) *server {
	t.Helper()
	bin, dir := s3Server(t), t.TempDir()
	for _, bucket := range buckets {
		if err := os.Mkdir(filepath.Join(dir, bucket), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	s := &server{t: t, addr: address(t)}
	s.start = func() *exec.Cmd {
		cmd := exec.Command(bin, "--port", s.addr, "--quiet", "--health", "/healthz", "posix", dir)
		cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+testKey, "ROOT_SECRET_KEY="+testSecret)
		return cmd
	}
	s.ready = func(*exec.Cmd, io.Reader) error {
		return until(func() error {
			answer, err := http.Get("http://" + s.addr + "/healthz")
			if err == nil {
				_ = answer.Body.Close()
			}
			return err
		})
	}
	t.Cleanup(func() { s.end(syscall.SIGKILL) })
	return s
}

// until tries something again and again, for as long as a test may wait.
func until(try func() error) error {
	deadline, tick := time.NewTimer(testPatience), time.NewTicker(20*time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return err
		}
	}
}

// up starts the server and returns when it serves.
func (s *server) up() *server {
	s.t.Helper()
	s.cmd = s.start()
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.said.Reset()
	s.cmd.Stderr = &s.said
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err == nil {
		err = s.ready(s.cmd, out)
	}
	if err != nil {
		path := s.cmd.Path
		s.end(syscall.SIGKILL) // then what it wrote is whole
		s.t.Fatalf("start %s: %v; it wrote: %s", path, err, s.said.Bytes())
	}
	return s
}

// end ends the server, if it runs.
func (s *server) end(how syscall.Signal) {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = s.cmd.Process.Signal(how)
	var exit *exec.ExitError
	if err := s.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		s.t.Error(err)
	}
	s.cmd = nil
}
