package front

import (
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A client is answered with the reason also when not a single descriptor is free.
func TestClientsAreAnsweredWithoutAFreeDescriptor(t *testing.T) { //nolint:paralleltest // it uses up the descriptors
	address := filepath.Join(t.TempDir(), "socket")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", address)
	if err != nil {
		t.Fatal(err)
	}
	var answering sync.WaitGroup
	limiter := &connLimiter{
		quota:     func() error { return syscall.EMFILE },
		refusal:   func(error) *RefusalError { return Refuse(http.StatusServiceUnavailable, "too many files open") },
		rejecting: make(chan struct{}, maxRejecting), running: &answering,
	}
	limiter.keepSpare()
	var clients []int
	for range 3 {
		client, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = syscall.Close(client) }() // a client that leaves
		clients = append(clients, client)
	}
	restore := useUpDescriptors(t)
	server := &http.Server{ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener{l, limiter}) }()
	for _, client := range clients {
		wantRefusal(t, client, address)
	}
	restore()
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	answering.Wait()
	if !limiter.closeSpare() {
		t.Error("the spare descriptor is not open again")
	}
}

// acceptor is a listener whose Accept is a function.
type acceptor struct {
	net.Listener
	accept func() (net.Conn, error)
}

func (a acceptor) Accept() (net.Conn, error) { return a.accept() }

// While a listener waits for a client, the spare descriptor is open: work must not get it. A listener that finds
// neither a free descriptor nor the spare one tries again by itself; net/http would wait up to a second each time.
func TestTheSpareDescriptorIsOpenUntilAClientComes(t *testing.T) {
	t.Parallel()
	limiter := &connLimiter{}
	calls := 0
	accept := func() (net.Conn, error) {
		switch calls++; calls {
		case 2: // after the spare descriptor was closed
			for end := time.Now().Add(time.Minute); limiter.spare.Load() == nil; <-time.After(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the spare descriptor is closed while no client is there")
				}
			}
		case 5:
			return nil, net.ErrClosed
		}
		return nil, syscall.EMFILE
	}
	if _, err := (listener{acceptor{accept: accept}, limiter}).Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v after %d calls, want the error of the listener that was closed", err, calls)
	}
	limiter.closeSpare()
}

// wantRefusal sends a request over a socket that is not connected yet.
func wantRefusal(t *testing.T, client int, address string) {
	t.Helper()
	got := make([]byte, 4096)
	n := 0
	err := errors.Join(
		syscall.SetsockoptTimeval(client, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &syscall.Timeval{Sec: 60}),
		syscall.Connect(client, &syscall.SockaddrUnix{Name: address}),
	)
	if err == nil {
		_, err = syscall.Write(client, []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	}
	if err == nil {
		n, err = syscall.Read(client, got)
	}
	if err != nil || !strings.Contains(string(got[:n]), "too many files open") {
		t.Errorf("answered %q, %v", got[:n], err)
	}
}

// useUpDescriptors opens as many files as this process may, until restore is called.
func useUpDescriptors(t *testing.T) (restore func()) {
	t.Helper()
	var before syscall.Rlimit
	var opened []int
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before)
	lowered := before
	lowered.Cur = 256
	err = errors.Join(err, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lowered))
	for err == nil {
		var one int
		if one, err = syscall.Dup(0); err == nil {
			opened = append(opened, one)
		}
	}
	if !errors.Is(err, syscall.EMFILE) {
		t.Error(err)
	}
	return func() {
		for _, one := range opened {
			_ = syscall.Close(one) // it was only open
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}
}
