package statefs

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs/files"
)

func asked(t *testing.T, tree *Tree, id ID, want ...Action) {
	t.Helper()
	sight, err := tree.ObserveAll(id)
	check(t, err)
	if !slices.Equal(sight.Requests, want) {
		t.Errorf("the requests are %q, want %q", sight.Requests, want)
	}
}

func TestTheLastRequestWins(t *testing.T) {
	t.Parallel()
	for _, durability := range []Durability{Power, Process} {
		tree := openTree(t, t.TempDir(), Options{Durability: durability})
		id := submit(t, tree).ID
		for _, test := range []struct {
			ask  Action
			want []Action
		}{
			{Pause, []Action{Pause}},
			{Pause, []Action{Pause}},
			{Resume, []Action{Resume}},
			{Pause, []Action{Pause}},
			{Cancel, []Action{Pause, Cancel}},
			{Approve, []Action{Pause, Cancel, Approve}},
			{Reject, []Action{Pause, Cancel, Reject}},
			{Retry, []Action{Pause, Cancel, Retry, Reject}},
			{Skip, []Action{Pause, Cancel, Retry, Skip, Reject}},
			{Set, []Action{Pause, Cancel, Retry, Skip, Set, Reject}},
		} {
			check(t, tree.Request(t.Context(), id, test.ask, nil))
			asked(t, tree, id, test.want...)
		}
		wantNames(t, filepath.Join(tree.Dir(), tmpDir))
	}
}

// TestConcurrentRequestIsKept: a request removes an opposite request that existed before it. An
// opposite request made during the write, perhaps by a requester who saw the effect already, is the
// later one and stays.
func TestConcurrentRequestIsKept(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{Durability: Process})
	for name, test := range map[string]struct {
		before    bool // a resume exists when the pause begins
		meanwhile func(file string)
		want      []Action
	}{
		"nothing":      {false, func(string) {}, []Action{Pause}},
		"asked before": {true, func(string) {}, []Action{Pause}},
		"asked": {
			false, func(file string) { check(t, os.WriteFile(file, nil, 0o600)) },
			[]Action{Pause, Resume},
		},
		"asked before, taken": {true, func(file string) { check(t, os.Remove(file)) }, []Action{Pause}},
		"asked before and now": {
			true, func(file string) { check(t, os.Chtimes(file, testTime, testTime.Add(time.Hour))) },
			[]Action{Pause, Resume},
		},
	} {
		id := submit(t, tree).ID
		file := filepath.Join(tree.JobsDir(), RequestName(id, Resume))
		if test.before {
			check(t, os.WriteFile(file, nil, 0o600))
		}
		before, err := tree.oppositeRequest(id, Pause)
		check(t, err)
		put(t, tree, "", jobsDir, RequestName(id, Pause))
		test.meanwhile(file)
		if before != nil {
			check(t, removeUnchanged(tree.jobs, RequestName(id, Resume), before))
		}
		sight, err := tree.ObserveAll(id)
		check(t, err)
		if !slices.Equal(sight.Requests, test.want) {
			t.Errorf("%s: the requests are %q, want %q", name, sight.Requests, test.want)
		}
	}
}

func TestEachRequestIsANewFile(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{Durability: Process, Now: frozen})
	id := submit(t, tree).ID
	path := filepath.Join(tree.JobsDir(), RequestName(id, Pause))
	check(t, tree.Request(t.Context(), id, Pause, nil))
	first, err := os.Open(path) // kept open, so that the inode number is not reused
	check(t, err)
	before, err := first.Stat()
	check(t, err)
	check(t, tree.Request(t.Context(), id, Pause, nil))
	after, err := os.Stat(path)
	check(t, err)
	check(t, first.Close())
	if os.SameFile(before, after) || after.Mode() != files.Mode {
		t.Errorf("asked twice: the same file %t, mode %s", os.SameFile(before, after), after.Mode())
	}
}

func TestArgumentsOfARequest(t *testing.T) {
	t.Parallel()
	for _, durability := range []Durability{Power, Process} {
		tree := openTree(t, t.TempDir(), Options{Durability: durability, Now: frozen})
		id := submit(t, tree).ID
		check(t, tree.Request(t.Context(), id, Set,
			json.RawMessage("{\n  \"step\": \"ingest\",\n  \"text\": \"a\\nb\"\n}\n")))
		data, err := os.ReadFile(filepath.Join(tree.JobsDir(), RequestName(id, Set)))
		check(t, err)
		const args = `{"step":"ingest","text":"a\nb"}`
		if want := "2025-11-26T13:07:00.123456+01:00\n" + args + "\n"; string(data) != want {
			t.Errorf("the request holds %q, want %q", data, want)
		}
		stamp, err := tree.Stamp(RequestName(id, Set))
		check(t, err)
		if !stamp.At.Equal(testTime) || string(stamp.Args) != args {
			t.Errorf("it is read as %+v", stamp)
		}
		for _, bad := range []string{"{", "[]", `"x"`, "null", "1", "{}{}"} {
			if err := tree.Request(t.Context(), id, Skip, json.RawMessage(bad)); err == nil {
				t.Errorf("arguments %s were accepted", bad)
			}
		}
		asked(t, tree, id, Set)
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	t.Parallel()
	o := own(t)
	rec := submit(t, o.Tree)
	for _, ask := range []Action{"", "stop", "../../x", "pause_requested", "PAUSE"} {
		if err := o.Request(t.Context(), rec.ID, ask, nil); err == nil || errors.Is(err, ErrNotLive) {
			t.Errorf("request %q: %v", ask, err)
		}
	}
	other := foreignID(t, 1)
	for _, id := range []ID{other, {}} {
		err := o.Request(t.Context(), id, Pause, nil)
		if !errors.Is(err, ErrNotLive) || err.Error() != "operation '"+id.String()+"' not found or already finished" {
			t.Errorf("request of %q: %v", id, err)
		}
	}
	check(t, rec.Apply(Queued, CauseCancel, testTime))
	check(t, finish(o, rec, Queued))
	if err := o.Request(t.Context(), rec.ID, Pause, nil); !errors.Is(err, ErrNotLive) {
		t.Errorf("request of an ended one: %v", err)
	}
	wantNames(t, o.JobsDir())
}

func TestTakeAndDrop(t *testing.T) {
	t.Parallel()
	o := own(t)
	id := submit(t, o.Tree).ID
	if _, ok, err := o.Requests.Take(id, Pause); ok || err != nil {
		t.Errorf("nothing was taken: %t, %v", ok, err)
	}
	path := put(t, o.Tree, "", jobsDir, RequestName(id, Pause)) // as touch does
	modified := time.Now().Add(-time.Hour).Truncate(time.Second)
	check(t, os.Chtimes(path, modified, modified))
	taken, ok, err := o.Requests.Take(id, Pause)
	check(t, err)
	if !ok || taken.ID != id || taken.Action != Pause || !taken.At.At.Equal(modified) {
		t.Errorf("taken %+v, %t", taken, ok)
	}
	asked(t, o.Tree, id)
	wantNames(t, filepath.Join(o.Dir(), takenDir), RequestName(id, Pause))
	check(t, o.Requests.Drop(taken))
	check(t, o.Requests.Drop(taken))
	wantNames(t, filepath.Join(o.Dir(), takenDir))

	check(t, o.Request(t.Context(), id, Cancel, nil))
	check(t, os.Remove(filepath.Join(o.Dir(), takenDir)))
	if _, ok, err := o.Requests.Take(id, Cancel); ok || !errors.Is(err, fs.ErrNotExist) ||
		!strings.Contains(err.Error(), "start the daemon again") {
		t.Errorf("without taken/: %t, %v", ok, err)
	}
	asked(t, o.Tree, id, Cancel)
}

func TestRestoreTakenAfterACrash(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		since func(t *testing.T, tree *Tree, id ID) // what happens between the crash and the start
		want  []Action
		back  int
		args  string
	}{
		{"nothing since", func(*testing.T, *Tree, ID) {}, []Action{Pause}, 1, `{"n":1}`},
		{"the same since", func(t *testing.T, tree *Tree, id ID) {
			t.Helper()
			check(t, tree.Request(t.Context(), id, Pause, json.RawMessage(`{"n":2}`)))
		}, []Action{Pause}, 0, `{"n":2}`},
		{"the opposite since", func(t *testing.T, tree *Tree, id ID) {
			t.Helper()
			check(t, tree.Request(t.Context(), id, Resume, nil))
		}, []Action{Resume}, 0, ""},
		{"cancel since", func(t *testing.T, tree *Tree, id ID) {
			t.Helper()
			check(t, tree.Request(t.Context(), id, Cancel, nil))
		}, []Action{Pause, Cancel}, 1, `{"n":1}`},
		{"an older opposite by hand", func(t *testing.T, tree *Tree, id ID) {
			t.Helper()
			age(t, put(t, tree, "", jobsDir, RequestName(id, Resume)), time.Hour)
		}, []Action{Pause, Resume}, 1, `{"n":1}`},
		{"a folder with the name of the opposite", func(t *testing.T, tree *Tree, id ID) {
			t.Helper()
			check(t, os.Mkdir(filepath.Join(tree.JobsDir(), RequestName(id, Resume)), 0o750))
		}, []Action{Pause}, 1, `{"n":1}`},
	} {
		for _, durability := range []Durability{Power, Process} {
			dir := t.TempDir()
			tree := openTree(t, dir, Options{Durability: durability})
			id := submit(t, tree).ID
			check(t, tree.Request(t.Context(), id, Pause, json.RawMessage(`{"n":1}`)))
			crashed, err := Own(tree)
			check(t, err)
			_, ok, err := crashed.Requests.Take(id, Pause)
			check(t, err)
			if !ok {
				t.Fatal("the request was not taken")
			}
			check(t, crashed.Release()) // as the end of the process does
			test.since(t, tree, id)

			o := ownTree(t, openTree(t, dir, Options{Durability: durability}))
			back, err := o.Requests.Restore()
			check(t, err)
			if back != test.back {
				t.Errorf("%s: %d put back, want %d", test.name, back, test.back)
			}
			asked(t, o.Tree, id, test.want...)
			wantNames(t, filepath.Join(dir, takenDir))
			if test.args != "" {
				if stamp, err := o.Stamp(RequestName(id, Pause)); err != nil || string(stamp.Args) != test.args {
					t.Errorf("%s: the pause has %s, %v", test.name, stamp.Args, err)
				}
			}
		}
	}
}

// TestRestoreTakenThatWasInterrupted: a crash while requests are put back leaves both names; the
// next start continues.
func TestRestoreTakenThatWasInterrupted(t *testing.T) {
	t.Parallel()
	o := own(t)
	id := submit(t, o.Tree).ID
	name := RequestName(id, Cancel)
	check(t, o.Request(t.Context(), id, Cancel, nil))
	check(t, o.root.Link(jobsDir+"/"+name, takenDir+"/"+name))
	_, err := o.Requests.Restore()
	check(t, err)
	asked(t, o.Tree, id, Cancel)
	wantNames(t, filepath.Join(o.Dir(), takenDir))
}

func TestRestoreTakenQuarantinesOtherFiles(t *testing.T) {
	t.Parallel()
	o := own(t)
	id := submit(t, o.Tree).ID
	put(t, o.Tree, "x", takenDir, "README")
	put(t, o.Tree, "x", takenDir, MarkerName(id, Running))
	check(t, os.Mkdir(filepath.Join(o.Dir(), takenDir, RequestName(id, Cancel)), 0o750))
	if back, err := o.Requests.Restore(); back != 0 || err != nil {
		t.Errorf("%d put back, %v", back, err)
	}
	wantNames(t, filepath.Join(o.Dir(), takenDir))
	wantNames(t, o.JobsDir(), MarkerName(id, Queued))
	if n := len(names(t, filepath.Join(o.Dir(), corruptDir))); n != 6 {
		t.Errorf("corrupt/ holds %d files, want 3 and their reasons", n)
	}
}
