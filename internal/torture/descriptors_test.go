package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs"
)

// fewest is the smallest limit of open files with which the daemon accepts work. With fewer it ends with a
// message, or serves and refuses work.
const fewest = 56

// readersReserve is how many descriptors are not available to clients.
const readersReserve = 4

// TestFewDescriptors gives the daemon a limit of 16 to 64 open files, uses them up with running commands and
// idle connections, and closes the connections again. In between, running commands continue and can be
// controlled by file, and new requests are refused with the reason. Afterwards everything works again and no
// acknowledged operation is lost.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	limits := prooftest.Count([]int{16, fewest}, []int{16, 30, 44, fewest, 64}, nil)
	if prooftest.Full() {
		limits = limits[:0]
		for n := 16; n <= 64; n++ {
			limits = append(limits, n)
		}
	}
	var served, unable int
	for _, limit := range limits {
		if fewDescriptors(t, limit) {
			served++
		} else {
			unable++
		}
		if t.Failed() {
			t.Fatalf("with a limit of %d", limit)
		}
	}
	figures.add(t, "limits of open files with which it served, refused and served again", served)
	figures.add(t, "lower limits with which it ended with a message, or refused all work", unable)
}

// startLimited starts a daemon with a limit of open files.
func (r *rig) startLimited(limit int) (*daemon, error) {
	r.t.Helper()
	d := r.launch("--sweep-interval", "1s")
	d.cmd.Args = append([]string{"sh", "-c", `ulimit -n "$0" && exec "$@"`, strconv.Itoa(limit)}, d.cmd.Args...)
	shell, err := exec.LookPath("sh")
	must(r.t, err)
	d.cmd.Path = shell
	return d, r.await(d)
}

func fewDescriptors(t *testing.T, limit int) (served bool) {
	t.Helper()
	const cause = "too many files open"
	r := newRig(t, filepath.Join(t.TempDir(), "storage"))
	d, err := r.startLimited(limit)
	if err != nil {
		if !errors.Is(err, errEnded) || limit >= fewest {
			t.Fatalf("the daemon does not start with %d descriptors: %v", limit, err)
		}
		until(t, "the daemon said why it ended", func() bool {
			return strings.Contains(d.stderr.String(),
				"too many open files")
		})
		return false
	}
	l := &load{r: r, ledger: newLedger()}
	var running []statefs.ID
	for len(running) < limit {
		op, err := d.Submit(t.Context(), "t", "sleep", nil)
		if err != nil {
			wantRefused(t, err, cause)
			break
		}
		must(t, l.ledger.submitted(op.ID, "sleep"))
		running = append(running, op.ID)
	}
	if limit < fewest {
		d.stop(t) // some work may have been accepted, which must not be lost
		must(t, l.ledger.checkDead(r.dir))
		return false
	}
	if len(running) == 0 {
		t.Errorf("no work is accepted with %d descriptors", limit)
	}
	idle := d.exhaustDescriptors(t, limit, cause)
	l.whileExhausted(t, d, running)
	for _, c := range idle {
		_ = c.Close() // it only had to stay open
	}
	tree, err := statefs.Open(r.dir, statefs.Options{})
	must(t, err)
	defer func() { must(t, tree.Close()) }()
	for _, id := range running {
		l.touched(t, id, statefs.Cancel)
	}
	until(t, "the daemon serves again", func() bool {
		op, err := d.Submit(t.Context(), "t", "quick", nil)
		if err != nil {
			wantRefused(t, err, cause)
			return false
		}
		must(t, l.ledger.submitted(op.ID, "quick"))
		return true
	})
	until(t, "the daemon says that it is ready", func() bool { status, _ := d.readyz(t); return status == http.StatusOK })
	l.finish(t, tree, d)
	must(t, r.checkEffects(tree))
	until(t, "no request is left", func() bool { // if the operation ended first, a sweep removes the request
		listing, err := tree.List()
		return err == nil && len(listing.IDs()) == 0
	})
	d.stop(t)
	wantEmpty(t, r.dir, "jobs", "tmp", "taken", "corrupt")
	return true
}

// exhaustDescriptors opens idle connections until the daemon rejects clients.
func (d *daemon) exhaustDescriptors(t *testing.T, limit int, cause string) (idle []net.Conn) {
	t.Helper()
	address := strings.TrimPrefix(d.Address(), "http://")
	told := false // by /readyz itself, as long as the daemon still accepts its connection
	for len(idle) < limit {
		status, body := d.readyz(t)
		if status == http.StatusServiceUnavailable && strings.Contains(body, cause) {
			break
		}
		told = told || status == http.StatusServiceUnavailable && strings.Contains(body, `"full":"too many open files`)
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		must(t, err)
		idle = append(idle, c)
	}
	if !told && len(idle) > readersReserve {
		t.Error("/readyz says nothing before clients are turned away")
	}
	until(t, "a submit is refused, with the reason", func() bool {
		_, err := d.Submit(t.Context(), "t", "quick", nil)
		refused, ok := errors.AsType[*client.Error](err)
		return ok && refused.Status == http.StatusServiceUnavailable && strings.Contains(refused.Message, cause)
	})
	return idle
}

// whileExhausted pauses and resumes the running operations by file, while the daemon rejects connections.
func (l *load) whileExhausted(t *testing.T, d *daemon, running []statefs.ID) {
	t.Helper()
	tree, err := statefs.Open(l.r.dir, statefs.Options{})
	must(t, err)
	defer func() { must(t, tree.Close()) }()
	var begun []statefs.ID // the others wait for descriptors
	for _, id := range running {
		if state, err := tree.State(id); err == nil && state == statefs.Running {
			begun = append(begun, id)
		}
	}
	for _, ask := range []statefs.Action{statefs.Pause, statefs.Resume} {
		for _, id := range begun {
			l.touched(t, id, ask)
		}
		l.settle(t, tree, d)
	}
	for _, id := range begun {
		must(t, eventually(func() error {
			if rec, err := tree.ReadRecord(id); err != nil || rec.Run != 1 {
				return fmt.Errorf("%s: %+v, %w, want the run that began", id, rec, err)
			}
			return nil
		}))
	}
}

func (l *load) touched(t *testing.T, id statefs.ID, ask statefs.Action) {
	t.Helper()
	must(t, l.r.touch(id, ask))
	l.ledger.requested(id, ask, true)
}

func (d *daemon) readyz(t *testing.T) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.Address()+"/readyz", http.NoBody)
	must(t, err)
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error() // with that many connections, the request may have been sent too late
	}
	defer func() { _ = response.Body.Close() }() // read
	data, err := io.ReadAll(response.Body)
	must(t, err)
	if !json.Valid(data) {
		t.Errorf("/readyz answers %q", data)
	}
	return response.StatusCode, string(data)
}

// wantRefused checks that a refusal arrives soon and names its cause: the daemon must not wait silently for
// descriptors.
func wantRefused(t *testing.T, err error, cause string) {
	t.Helper()
	refused, ok := errors.AsType[*client.Error](err)
	if !ok || refused.Status != http.StatusServiceUnavailable && refused.Status != http.StatusInsufficientStorage ||
		!strings.Contains(refused.Message, cause) {
		t.Fatalf("got %v, want a refusal with %q", err, cause)
	}
}
