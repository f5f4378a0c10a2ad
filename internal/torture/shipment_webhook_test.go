package torture

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jobdir/jobdir/internal/addrtest"
	"github.com/jobdir/jobdir/internal/prooftest"
)

// TestResultsReachAWebhookThroughKills kills the process behind a webhook, and the daemon with it: each
// result arrives at least once, and repetitions have the same ID and the same body.
func TestResultsReachAWebhookThroughKills(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*shipment{
		"server": {killsTarget: true},
		"both":   {killsTarget: true, killsDaemon: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHook(t)
			must(t, h.Start(t.Context()))
			s.to, s.args = h, []string{"--webhook-allow", "127.0.0.0/8"}
			ship(t, fmt.Sprintf(`webhook: {url: "http://%s/"}`, h.addr), prooftest.Count(20, 60, 1000), s)
			s.checkHook(h)
		})
	}
}

// hooked is a request that a webhook received.
type hooked struct{ ID, Body string }

// checkHook compares the requests of a webhook with the records.
func (s *shipment) checkHook(h *hook) {
	s.t.Helper()
	f, err := os.Open(h.got)
	must(s.t, err)
	defer func() { must(s.t, f.Close()) }()
	bodies := make(map[string]string)
	count := 0
	for dec := json.NewDecoder(f); ; count++ {
		var r hooked
		err := dec.Decode(&r)
		if errors.Is(err, io.EOF) {
			break
		}
		must(s.t, err)
		if body, again := bodies[r.ID]; again && body != r.Body {
			s.t.Errorf("%s arrived as %q and as %q", r.ID, body, r.Body)
		}
		bodies[r.ID] = r.Body
	}
	for id := range s.ids {
		rec, err := s.tree.ReadRecord(id)
		must(s.t, err)
		if body, arrived := bodies[id.String()+".1"]; !arrived || body != string(rec.Footer) {
			s.t.Errorf("of %s arrived %q, and the footer is %s", id, body, rec.Footer)
		}
	}
	if len(bodies) != len(s.ids) {
		s.t.Errorf("%d different requests came for %d results", len(bodies), len(s.ids))
	}
	figures.add(s.t, "requests that came once more under the same name, because their answer was lost", count-len(bodies))
}

// hook is a webhook in its own process, always at the same address, which stores each request before it
// answers.
type hook struct {
	addr, got string
	cmd       *exec.Cmd
}

func newHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{addr: addrtest.For(t), got: filepath.Join(t.TempDir(), "got")}
	must(t, os.WriteFile(h.got, nil, 0o600))
	t.Cleanup(h.Kill)
	return h
}

// Start implements receiver.
func (h *hook) Start(context.Context) error {
	h.cmd = exec.Command("/proc/self/exe", h.addr, h.got)
	h.cmd.Env = append(os.Environ(), childEnv+"=hook")
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := h.cmd.Start(); err != nil {
		return err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		h.Kill()
		return fmt.Errorf("the webhook said %q: %w", line, err)
	}
	return nil
}

// Kill implements receiver.
func (h *hook) Kill() {
	if h.cmd == nil {
		return
	}
	_ = h.cmd.Process.Kill() // it may have ended
	_ = h.cmd.Wait()         // it was killed
	h.cmd = nil
}

func init() { children["hook"] = childHooks }

// childHooks is a webhook at an address that appends its requests to a file.
func childHooks(args []string) error {
	f, err := os.OpenFile(args[1], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	fmt.Println("it listens")
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the request was interrupted
		}
		line, err := json.Marshal(hooked{r.Header.Get("Webhook-Id"), string(body)})
		if err == nil {
			_, err = f.Write(append(line, '\n')) // in one write, so that a kill leaves no partial line
		}
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
}
