package statefs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSubmissionNames(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"a.json": "a", "a.json.json": "a.json", "Ä b.json": "Ä b",
		"two\nlines.json": "two\nlines",
	} {
		if got, ok := SubmissionName(file); !ok || got != want {
			t.Errorf("%q is %q, %t", file, got, ok)
		}
	}
	for _, file := range []string{
		".json", ".a.json", "a.json.part", "a.accepted", "a", "",
		strings.Repeat("a", 201) + ".json",
	} {
		if name, ok := SubmissionName(file); ok {
			t.Errorf("%q is %q", file, name)
		}
	}
}

func TestSubmissionsByFile(t *testing.T) {
	t.Parallel()
	o := own(t)
	name, err := o.PutSubmission([]byte("one"))
	check(t, err)
	if names, err := o.Inbox.List(); err != nil || len(names) != 1 || names[0] != name {
		t.Fatalf("left %v, %v", names, err)
	}
	if data, written, err := o.Inbox.Peek(name); err != nil || string(data) != "one" || written.IsZero() {
		t.Errorf("left %q at %s, %v", data, written, err)
	}
	check(t, o.Inbox.Take(name))
	if err := o.Inbox.Take(name); !errors.Is(err, fs.ErrExist) {
		t.Errorf("taken twice: %v", err)
	}
	file := filepath.Join(o.NewDir(), name)
	check(t, os.WriteFile(file+".json", []byte("one"), 0o600))
	if err := o.Inbox.Take(name); !errors.Is(err, fs.ErrExist) {
		t.Errorf("taken over the first: %v", err)
	}
	data, first, err := o.Inbox.Read(name)
	check(t, err)
	if _, again, err := o.Inbox.Read(name); err != nil || again != first || string(data) != "one" {
		t.Errorf("read again as %s, %v, first as %s", again, err, first)
	}
	if put, err := o.Requests.Restore(); err != nil || put != 0 {
		t.Errorf("requests put back: %d, %v", put, err)
	}
	ids := []ID{foreignID(t, 1), foreignID(t, 2)}
	check(t, os.WriteFile(file+".rejected", nil, 0o600)) // the answer to an earlier submission
	check(t, o.Inbox.Accept(name, ids))
	wantNames(t, filepath.Join(o.Dir(), takenDir))
	wantNames(t, o.NewDir(), name+".accepted", name+".json")
	if text, err := os.ReadFile(file + ".accepted"); err != nil ||
		string(text) != ids[0].String()+"\n"+ids[1].String()+"\n" {
		t.Errorf("the answer is %q, %v", text, err)
	}

	check(t, o.Inbox.Take(name))
	_, second, err := o.Inbox.Read(name)
	check(t, err)
	if second == first {
		t.Error("two files of one name and content are one")
	}
	check(t, o.Inbox.Reject(name, true, "no\n such  job"))
	wantNames(t, filepath.Join(o.Dir(), takenDir))
	wantNames(t, o.NewDir(), name+".rejected")
	if text, err := os.ReadFile(file + ".rejected"); err != nil || string(text) != "no such job\n" {
		t.Errorf("the answer is %q, %v", text, err)
	}
	kept, err := filepath.Glob(filepath.Join(o.Dir(), corruptDir, "*"+name+".json"))
	check(t, err)
	if len(kept) != 1 {
		t.Errorf("kept is %v", kept)
	}
	if _, _, err := o.Inbox.Read(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that is gone: %v", err)
	}
	if err := o.Inbox.Take(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that is gone is taken: %v", err)
	}
}

func TestSweepAnswers(t *testing.T) {
	t.Parallel()
	o := own(t)
	now := time.Now()
	old := now.Add(-8 * 24 * time.Hour)
	for file, at := range map[string]time.Time{
		"a.accepted": old, "b.rejected": old, "c.accepted": now,
		"d.json": old, "e.txt": old,
	} {
		path := filepath.Join(o.NewDir(), file)
		check(t, os.WriteFile(path, nil, 0o600))
		check(t, os.Chtimes(path, at, at))
	}
	check(t, os.Mkdir(filepath.Join(o.NewDir(), "f.accepted"), 0o700))
	check(t, o.Inbox.Sweep())
	wantNames(t, o.NewDir(), "c.accepted", "d.json", "e.txt", "f.accepted")
}
