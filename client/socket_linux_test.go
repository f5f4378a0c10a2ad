package client_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/client"
)

// A path that is too long for a socket address works too.
func TestLongSocketPath(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 40))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/x.sock", root.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{
		Listener: l,
		Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"ready": true}`)
		})},
	}
	server.Start()
	defer server.Close()
	c, err := client.New("unix:" + filepath.Join(dir, "x.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if health, err := c.Health(t.Context()); err != nil || !health.Ready {
		t.Errorf("health %+v, error %v", health, err)
	}
}
