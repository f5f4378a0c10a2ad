package daemon

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

const deliverJob = `
group: test
name: made
params: {at: {type: string, default: here}, fail: {type: boolean, default: false}}
run: [sh, -c, 'echo "{\"made\": 7}" >$JOBDIR_RESULT; echo done; ! $JOBDIR_PARAM_FAIL']
deliver:
`

// delivered waits until the record contains the outcomes of all deliveries, and returns it.
func (b *bench) delivered(id statefs.ID, want ...statefs.DeliveryStatus) *statefs.Record {
	b.t.Helper()
	var rec *statefs.Record
	b.poll(fmt.Sprintf("the deliveries of %s are %v", id, want), func() bool {
		var err error
		if rec, err = b.tree.ReadRecord(id); err != nil || !rec.Status.Terminal() || len(rec.Deliveries) != len(want) {
			return false
		}
		for i, state := range want {
			if rec.Deliveries[i].State != state {
				return false
			}
		}
		return true
	})
	return rec
}

func (b *bench) outbox() (names []string) {
	b.t.Helper()
	entries, err := os.ReadDir(filepath.Join(b.dir, "outbox"))
	must(b.t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestDeliverToFolder(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	b := setup(t, deliverJob+`
  - folder: {path: "`+out+`", key: "${params.at}/${id}.json"}
  - folder: {path: "`+out+`", send: log, on: ended}
  - folder: {path: "`+out+`", send: record, key: "${id}.record", on: ended}
`, nil)
	id := b.submit("made", "{}")
	rec := b.delivered(id, statefs.DeliveryDelivered, statefs.DeliveryDelivered, statefs.DeliveryDelivered)
	b.poll("the outbox is empty", func() bool { return len(b.outbox()) == 0 })
	for name, want := range map[string]string{
		"here/" + id.String() + ".json": string(rec.Footer),
		id.String() + ".log":            "done\n",
	} {
		if data, err := os.ReadFile(filepath.Join(out, name)); err != nil || string(data) != want {
			t.Errorf("%s is %q, %v, want %q", name, data, err, want)
		}
	}
	if got := rec.Deliveries[0].Output; got.Location != filepath.Join(out, "here", id.String()+".json") ||
		got.Bytes != int64(len(rec.Footer)) {
		t.Errorf("the record says %+v", got)
	}
	if data, err := os.ReadFile(filepath.Join(out, id.String()+".record")); err != nil ||
		!strings.Contains(string(data), `"status":"completed"`) {
		t.Errorf("the record is %q, %v", data, err)
	}
	failed := b.submit("made", `{"fail": true}`)
	if rec := b.delivered(failed, statefs.DeliveryDelivered, statefs.DeliveryDelivered); rec.Deliveries[0].Place != 2 ||
		rec.Status != statefs.Failed {
		t.Errorf("of one that failed: %+v", rec.Deliveries)
	}
}

// Members of the result can be used in names, also of artifacts. A member that the result lacks, or
// that only the daemon writes, leaves the delivery to a person.
func TestDeliverByResult(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	b := setup(t, strings.Replace(deliverJob, "echo done;", "echo done; touch $JOBDIR_ARTIFACTS/a;", 1)+`
  - folder: {path: "`+out+`", key: "${result.made}/${id}.json"}
  - folder: {path: "`+out+`", key: "files/${result.made}/${artifact}", send: artifacts}
  - folder: {path: "`+out+`", key: "${result.missing}/${id}.json"}
  - folder: {path: "`+out+`", key: "${result.state}/${id}.json"}
`, nil)
	id := b.submit("made", "{}")
	rec := b.delivered(id, statefs.DeliveryDelivered, statefs.DeliveryDelivered, statefs.DeliveryManual,
		statefs.DeliveryManual)
	for _, name := range []string{"7/" + id.String() + ".json", "files/7/a"} {
		if _, err := os.Stat(filepath.Join(out, name)); err != nil {
			t.Error(err)
		}
	}
	for i, member := range map[int]string{2: "missing", 3: "state"} {
		if want := `the result has no member "` + member + `", which the key needs`; rec.Deliveries[i].Error != want {
			t.Errorf("the record says %q, want %q", rec.Deliveries[i].Error, want)
		}
	}
	if log := b.log(id); !strings.Contains(log,
		`ERROR: it is not delivered to target 3 (folder): the result has no member "missing"`) {
		t.Errorf("the log says %q", log)
	}
}

// A parameter whose name would lead outside the folder is reported in the log and the record, and
// nothing is written.
func TestDeliverOutside(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	out := filepath.Join(top, "out")
	must(t, os.Mkdir(out, 0o750))
	b := setup(t, deliverJob+`
  - folder: {path: "`+out+`", key: "${params.at}/${id}.json"}
`, nil)
	id := b.submit("made", `{"at": "../.."}`)
	rec := b.delivered(id, statefs.DeliveryManual)
	b.wantLog(id, "done", `  ERROR: it is not delivered to target 1 (folder): `+rec.Deliveries[0].Error)
	if !strings.Contains(rec.Deliveries[0].Error, "would lead outside") || len(b.outbox()) != 0 {
		t.Errorf("the record says %+v, the outbox has %v", rec.Deliveries[0], b.outbox())
	}
}

// An undelivered result survives restarts and the retention, and is delivered when the target is
// available.
func TestDeliverWhenTheTargetIsBack(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	b := setup(t, deliverJob+`
  - folder: {path: "`+out+`"}
`, nil)
	id := b.submit("made", "{}")
	b.delivered(id, statefs.DeliveryPending)
	name := id.String() + ".1-folder.pending"
	b.poll("the entry says why", func() bool {
		data, err := os.ReadFile(filepath.Join(b.dir, "outbox", name))
		return err == nil && strings.Contains(string(data), "make the folder, or mount its disk")
	})
	if err := b.daemon.Delete(t.Context(), id); err == nil || !strings.Contains(err.Error(), "still to be delivered") {
		t.Errorf("it can be deleted: %v", err)
	}
	must(t, b.stop())
	must(t, os.Mkdir(out, 0o750))
	b.start()
	rec := b.delivered(id, statefs.DeliveryDelivered)
	b.poll("the outbox is empty", func() bool { return len(b.outbox()) == 0 })
	if data, err := os.ReadFile(filepath.Join(out, id.String()+".json")); err != nil ||
		string(data) != string(rec.Footer) {
		t.Errorf("it is %q, %v", data, err)
	}
}

func TestDeliverToWebhook(t *testing.T) {
	t.Parallel()
	var answer atomic.Int64
	answer.Store(http.StatusForbidden)
	got := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		select {
		case got <- r.URL.RawQuery + " " + r.Header.Get("webhook-id") + " " + string(body):
		default:
		}
		w.WriteHeader(int(answer.Load()))
	}))
	defer server.Close()
	b := prepare(t, deliverJob+`
  - webhook: {url: "`+server.URL+`/hook/hush-hush?token=secret&at=${params.at}"}
`, nil)
	b.config.Outbox.WebhookAllow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	logged := b.logInto()
	b.tellEvents()
	b.start()
	id := b.submit("made", "{}")
	rec := b.delivered(id, statefs.DeliveryManual)
	if want := "token=secret&at=here " + id.String() + ".1 " + string(rec.Footer); <-got != want {
		t.Errorf("it was not sent %q", want)
	}
	if !strings.Contains(rec.Deliveries[0].Error, "403") {
		t.Errorf("the record says %q", rec.Deliveries[0].Error)
	}
	held := filepath.Join(b.dir, "outbox", id.String()+".1-webhook.failed_manual")
	b.poll("it waits for a person", func() bool { _, err := os.Stat(held); return err == nil })

	answer.Store(http.StatusNoContent)
	must(t, os.Rename(held, strings.TrimSuffix(held, "failed_manual")+"pending"))
	_, err := b.daemon.Sweep(t.Context(), false)
	must(t, err)
	rec = b.delivered(id, statefs.DeliveryDelivered)
	if want := server.URL + " (target 1)"; rec.Deliveries[0].Name != want {
		t.Errorf("it is called %q, want %q", rec.Deliveries[0].Name, want)
	}
	// The path and the query may be secrets: only the definition contains them, and no record, log,
	// event or outbox file does.
	must(t, filepath.WalkDir(b.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || filepath.Base(filepath.Dir(path)) == "definitions" {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), "hush") || strings.Contains(string(data), "token") {
			t.Errorf("%s has the address: %s", path, data)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a temporary file
		}
		return err
	}))
	if logged.with("hush")+logged.with("token") > 0 {
		t.Error("the log of the daemon has the address")
	}
	if rec.Deliveries[0].Error != "" || rec.Deliveries[0].Output.Location != server.URL {
		t.Errorf("the record says %+v", rec.Deliveries[0])
	}
}

// An entry without a terminal record is dropped, and so is one whose delivery is already recorded.
func TestEntriesOfNoEnd(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	b := setup(t, deliverJob+`
  - folder: {path: "`+out+`"}
---
group: test
name: later
run: ["true"]
lane: closed
`, nil)
	done := b.submit("made", "{}")
	b.delivered(done, statefs.DeliveryDelivered)
	waits := b.submit("later", "{}")
	b.poll("the outbox is empty", func() bool { return len(b.outbox()) == 0 })
	must(t, b.stop())
	put := func(id, text string) {
		must(t, os.WriteFile(filepath.Join(b.dir, "outbox", id+".1-folder.pending"), []byte(text), 0o600))
	}
	put(done.String(), `{"version":1,"run":1}`)
	put(waits.String(), `{"version":1,"run":1}`)
	put("test-none_2025-11-26_13-07-00_p1_r999", `{"version":1,"run":1}`)
	must(t, os.Remove(filepath.Join(out, done.String()+".json")))
	b.start()
	b.poll("the outbox is empty", func() bool { return len(b.outbox()) == 0 })
	if _, err := os.Stat(filepath.Join(out, done.String()+".json")); err == nil {
		t.Error("what was delivered before was delivered again")
	}
	if set, err := filepath.Glob(filepath.Join(b.dir, "corrupt", "*1-folder.pending")); err != nil || len(set) != 1 {
		t.Errorf("set aside are %v, %v", set, err)
	}
}

// Removing a marker while no daemon runs cancels the operation, and targets for all ends receive
// it.
func TestDeliverWhatWasRemovedWhileNoDaemonRan(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	b := setup(t, deliverJob+`
  - folder: {path: "`+out+`", send: record, on: ended}
---
group: test
name: held
lane: still
run: ["true"]
deliver:
  - folder: {path: "`+out+`", send: record, on: ended}
`, nil)
	must(t, os.WriteFile(filepath.Join(b.dir, "lanes", "still.paused"), nil, 0o600))
	removed, kept := b.submit("held", "{}"), b.submit("held", "{}")
	must(t, b.stop())
	must(t, os.Remove(filepath.Join(b.tree.JobsDir(), statefs.MarkerName(removed, statefs.Queued))))
	b.start()
	if rec := b.delivered(removed, statefs.DeliveryDelivered); rec.Status != statefs.Cancelled {
		t.Errorf("it is %s", rec.Status)
	}
	must(t, os.Remove(filepath.Join(b.tree.JobsDir(), statefs.MarkerName(kept, statefs.Queued))))
	b.delivered(kept, statefs.DeliveryDelivered)
}
