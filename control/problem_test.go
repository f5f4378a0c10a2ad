package control

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/stream"
)

func TestErrorsHaveOneStatus(t *testing.T) {
	t.Parallel()
	_, badID := statefs.ParseID("x")
	for _, c := range []struct {
		err    error
		status int
		logged bool
	}{
		{badID, 400, false},
		{&catalog.ParamError{Param: "a", Reason: "missing"}, 400, false},
		{statefs.ErrNotLive, 404, false},
		{stream.ErrShutdown, 503, false},
		{&fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, 507, true},
		{&fs.PathError{Op: "write", Path: "x", Err: syscall.EDQUOT}, 507, true},
		{&fs.PathError{Op: "open", Path: "x", Err: syscall.EMFILE}, 503, true},
		{&files.SyncError{Path: "x", Err: syscall.EIO}, 500, true},
		{errors.New("anything else"), 500, true},
	} {
		got := refusalOf(fmt.Errorf("submit a/b: %w", c.err))
		if got.Status != c.status || (got.Cause != nil) != c.logged {
			t.Errorf("%v: %d, logged %v", c.err, got.Status, got.Cause != nil)
		}
		if got.Cause != nil && strings.Contains(got.Text, "x") && strings.Contains(got.Text, "open x") {
			t.Errorf("%v: the answer %q tells what is inside", c.err, got.Text)
		}
		if got.Status == 503 && got.Header.Get("Retry-After") == "" {
			t.Errorf("%v: no Retry-After", c.err)
		}
	}
}

// An unreadable record is named wherever it is needed, and the log is available all the same.
func TestRecordThatCannotBeRead(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.submit()
	must(t, os.WriteFile(strings.TrimSuffix(r.tree.LogPath(w.id), ".log")+".json", []byte("{"), 0o640))
	p := r.problem(r.get(w.path("/stream")), 500, "operations/"+w.id.Day()+"/"+w.id.String()+".json cannot be read: ")
	if p["log_entry"] != float64(1) || !strings.Contains(r.logged.String(), "log_entry=1") ||
		!strings.Contains(r.logged.String(), "cannot be read") {
		t.Errorf("%v, log: %s", p, r.logged)
	}
	if out := r.get(w.path("")).json(t); out["state"] != "queued" || out["problem"] == nil {
		t.Errorf("an operation with a record that cannot be read: %v", out)
	}
	if log := r.get(w.path("/log")); log.status != 200 {
		t.Errorf("its log: %d", log.status)
	}
}

// Many clients show only the one line of an error, so it names the correct form.
func TestMessagesSayWhatIsRight(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for _, c := range []struct{ method, path, body, message string }{
		{"GET", "/testrouter/operations?x=1", "", "Unknown parameter 'x'; known here: endpoint"},
		{"GET", "/api/v1/operations/x", "", "Invalid operation ID: \"x\""},
		{"POST", "/testrouter/control", `{"id":1}`, `as in {"id": "...", "action": "pause"}`},
		{"POST", "/testrouter/streaming01", "[1]", "the parameters are not a JSON object"},
	} {
		p := r.problem(r.do(c.method, c.path, c.body), 400, c.message)
		if p["parameter"] == "" {
			t.Errorf("%s: a parameter without a name: %v", c.path, p)
		}
	}
}
