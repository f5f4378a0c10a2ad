package statefs

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs/files"
)

func recordPath(tree *Tree, id ID) string { return filepath.Join(tree.Dir(), dayFile(id, ".json")) }

func TestRecordRoundTrip(t *testing.T) {
	t.Parallel()
	o := own(t)
	rec := submit(t, o.Tree)
	code, length := 3, int64(4096)
	rec.Result, rec.ExitCode, rec.LogBytes, rec.Error = Failure, &code, &length, &Fault{"exit", "it ended with 3"}
	rec.Footer = json.RawMessage(`{"result":"failure"}`)
	check(t, rec.Apply(Queued, CauseFailed, testTime))
	check(t, o.WriteRecord(rec))
	back, err := o.ReadRecord(rec.ID)
	check(t, err)
	want, err := json.Marshal(rec)
	check(t, err)
	got, err := json.Marshal(back)
	check(t, err)
	if string(got) != string(want) || !reflect.DeepEqual(back.Footer, rec.Footer) {
		t.Errorf("read\n%s\nwant\n%s", got, want)
	}
	wantNames(t, filepath.Join(o.Dir(), tmpDir))
}

func TestRecordsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{Durability: Process})
	other := foreignID(t, 1)
	for _, test := range []struct {
		name, content string // ID is replaced by the ID of the record
		newer         bool
		reason        string
	}{
		{"empty", "", false, "unexpected end"},
		{"zero bytes", strings.Repeat("\x00", 300), false, "invalid character"},
		{"torn", `{"version":1,"id":"ID","sta`, false, "unexpected end"},
		{"two documents", `{"version":1,"id":"ID","status":"queued"}{}`, false, "after top-level value"},
		{"another type", `["ID"]`, false, "cannot unmarshal"},
		{"null", `null`, false, `record of ""`},
		{"no ID", `{"version":1,"status":"queued"}`, false, `record of ""`},
		{"an ID that is none", `{"version":1,"id":"../x","status":"queued"}`, false, "not an operation ID"},
		{"another ID", `{"version":1,"id":"` + other.String() + `","status":"queued"}`, false, other.String()},
		{"a field of another type", `{"version":1,"id":"ID","status":"queued","run":"1"}`, false, "cannot unmarshal"},
		{"no status", `{"version":1,"id":"ID"}`, false, "no state"},
		{"an unknown status", `{"version":1,"id":"ID","status":"../../x"}`, false, "no state"},
		{"an unknown next state", `{"version":1,"id":"ID","status":"queued","next":"banana"}`, false, "no live state"},
		{"a terminal next state", `{"version":1,"id":"ID","status":"queued","next":"failed"}`, false, "no live state"},
		{"newer", `{"version":2,"id":"ID","status":"dreaming"}`, true, "start"},
		{"newer with another ID", `{"version":99}`, true, "format 99"},
	} {
		rec := submit(t, tree)
		check(t, os.WriteFile(recordPath(tree, rec.ID),
			[]byte(strings.ReplaceAll(test.content, "ID", rec.ID.String())), 0o600))
		got, err := tree.ReadRecord(rec.ID)
		if got != nil || err == nil {
			t.Errorf("%s: %+v, %v", test.name, got, err)
			continue
		}
		if test.newer {
			if !errors.Is(err, ErrNewerVersion) {
				t.Errorf("%s: %v", test.name, err)
			}
			continue
		}
		corrupt, ok := errors.AsType[*CorruptError](err)
		if !ok || !strings.Contains(corrupt.Reason, test.reason) || corrupt.Path != dayFile(rec.ID, ".json") {
			t.Errorf("%s: %v, want %q", test.name, err, test.reason)
		}
	}
}

// TestRecordsThatAreNoFiles: anything but a regular file with the name of a record is a damaged
// record, and is never followed or waited for.
func TestRecordsThatAreNoFiles(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{Durability: Process})
	outside := filepath.Join(t.TempDir(), "outside")
	check(t, os.WriteFile(outside, []byte("{}"), 0o600))
	for name, place := range map[string]func(path string) error{
		"folder":            func(path string) error { return os.Mkdir(path, 0o700) },
		"fifo":              func(path string) error { return unix.Mkfifo(path, 0o600) },
		"link to the old":   func(path string) error { return os.Symlink(filepath.Base(path)+".old", path) },
		"link to outside":   func(path string) error { return os.Symlink(outside, path) },
		"link to itself":    func(path string) error { return os.Symlink(filepath.Base(path), path) },
		"link to nothing":   func(path string) error { return os.Symlink("nothing", path) },
		"unix socket":       func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) },
		"nothing but a log": func(string) error { return nil },
	} {
		rec := submit(t, tree)
		path := recordPath(tree, rec.ID)
		check(t, os.Rename(path, path+".old"))
		check(t, place(path))
		_, err := tree.ReadRecord(rec.ID)
		missing := name == "nothing but a log"
		if _, corrupt := errors.AsType[*CorruptError](err); corrupt == missing || errors.Is(err, fs.ErrNotExist) != missing {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRecordLargerThanTheLimit(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{Durability: Process})
	rec := submit(t, tree)
	check(t, os.Truncate(recordPath(tree, rec.ID), 1<<40)) // takes no disk space
	if _, err := tree.readRegular(dayFile(rec.ID, ".json"), 1<<10); err == nil ||
		!strings.Contains(err.Error(), "larger than 1024") {
		t.Errorf("a file of 1 TiB: %v", err)
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	o := own(t)
	rec := submit(t, o.Tree)
	if _, err := o.ReadProgress(rec.ID); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before any: %v", err)
	}
	total := int64(20)
	check(t, o.Output.WriteProgress(rec.ID, Progress{Done: 3, Total: &total, Phase: "half", At: testTime}))
	p, err := o.ReadProgress(rec.ID)
	check(t, err)
	if p.Done != 3 || *p.Total != 20 || p.Phase != "half" || !p.At.Equal(testTime) {
		t.Errorf("progress came back as %+v", p)
	}
	put(t, o.Tree, "{", dayFile(rec.ID, ".progress"))
	_, err = o.ReadProgress(rec.ID)
	if _, ok := errors.AsType[*CorruptError](err); !ok {
		t.Errorf("a torn one: %v", err)
	}
}

// TestActiveTimeExcludesPauses: paused time does not count against a timeout that the next daemon
// takes over.
func TestActiveTimeExcludesPauses(t *testing.T) {
	t.Parallel()
	at := func(seconds int) time.Time { return time.Unix(1_800_000_000+int64(seconds), 0) }
	began := at(10)
	rec := &Record{StartedAt: &began, Transitions: []PastTransition{
		{From: Queued, To: Running, At: at(2)},
		{From: Running, To: Queued, At: at(5)},
		{From: Queued, To: Running, At: at(10)},
		{From: Running, To: Paused, At: at(14)},
		{From: Paused, To: Running, At: at(30)},
	}}
	if got := rec.ActiveTime(at(33)); got != 7*time.Second {
		t.Errorf("worked %s", got)
	}
	rec.Transitions = append(rec.Transitions, PastTransition{From: Running, To: Paused, At: at(40)})
	if got := rec.ActiveTime(at(99)); got != 14*time.Second {
		t.Errorf("while paused: worked %s", got)
	}
}

func TestReadEndedFindsTheEndsOnly(t *testing.T) {
	t.Parallel()
	o := ownTree(t, openTree(t, t.TempDir(), Options{Durability: Process}))
	for _, status := range States() {
		// Terminal states may also appear as other values.
		rec, err := o.Submit(t.Context(), Submission{
			Group: "g", Job: "j",
			Params: []byte(`{"status":"completed","b":"failed"}`),
		})
		check(t, err)
		rec.Status = status
		check(t, o.WriteRecord(rec))
		ended, err := o.ReadEnded(rec.ID)
		check(t, err)
		if (ended != nil) != status.Terminal() {
			t.Errorf("%s: %v", status, ended)
		}
		data, err := os.ReadFile(filepath.Join(o.Dir(), dayFile(rec.ID, ".json")))
		check(t, err)
		// As after a manual edit.
		check(t, os.WriteFile(filepath.Join(o.Dir(), dayFile(rec.ID, ".json")), bytes.ReplaceAll(data, []byte(`":"`),
			[]byte(`" : "`)), files.Mode))
		if ended, err = o.ReadEnded(rec.ID); err != nil || (ended != nil) != status.Terminal() {
			t.Errorf("%s, edited: %v, %v", status, ended, err)
		}
	}
	id, err := MakeID("g-j", time.Now(), 1, 1e6)
	check(t, err)
	if _, err := o.ReadEnded(id); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a record: %v", err)
	}
}
