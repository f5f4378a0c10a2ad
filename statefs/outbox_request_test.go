package statefs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestRequestDelivery(t *testing.T) {
	t.Parallel()
	o := own(t)
	if _, asked, err := o.Outbox.Requested(entryOf); asked || err != nil {
		t.Fatalf("before anything: %v, %v", asked, err)
	}
	check(t, o.Outbox.Request(entryOf, RetryDelivery, Args{By: "anna", Reason: "the bucket is back"}))
	a, asked, err := o.Outbox.Requested(entryOf)
	if err != nil || !asked || a.Action != RetryDelivery || a.By != "anna" || a.Reason != "the bucket is back" {
		t.Errorf("asked is %+v, %v, %v", a, asked, err)
	}
	check(t, o.Outbox.Request(entryOf, DropDelivery, Args{}))
	if files, err := o.Outbox.List(); err != nil || !slices.Equal(files.Requested, []EntryName{entryOf}) ||
		len(files.Others) != 0 {
		t.Errorf("listed %+v, %v", files, err)
	}
	check(t, o.Outbox.DropRequest(a)) // the answer to another request
	a, asked, err = o.Outbox.Requested(entryOf)
	if err != nil || !asked || a.Action != DropDelivery || a.By == "" {
		t.Errorf("the last one does not win: %+v, %v, %v", a, asked, err)
	}
	check(t, o.Outbox.Request(entryOf, DropDelivery, Args{}))
	check(t, o.Outbox.DropRequest(a))
	if a, asked, err = o.Outbox.Requested(entryOf); err != nil || !asked {
		t.Errorf("one that was asked since is gone: %v, %v", asked, err)
	}
	check(t, o.Outbox.DropRequest(a))
	check(t, o.Outbox.DropRequest(a))
	check(t, os.WriteFile(filepath.Join(o.Dir(), outboxDir, entryOf.String()+".retry_requested"),
		[]byte("not { a time\n"), 0o600))
	if a, asked, err = o.Outbox.Requested(entryOf); err != nil || !asked || a.Action != RetryDelivery {
		t.Errorf("by hand: %+v, %v, %v", a, asked, err)
	}
	if err := o.Outbox.Request(entryOf, DropDelivery, Args{By: strings.Repeat("x", MaxBy+1)}); err == nil {
		t.Error("anybody can ask anything")
	}
}

func TestEntryIsRevived(t *testing.T) {
	t.Parallel()
	o := own(t)
	check(t, o.Outbox.Write(entryOf, &OutboxEntry{Run: 1, LastError: "no"}))
	check(t, o.Outbox.Hold(entryOf))
	if has, manual, err := o.Outbox.Has(entryOf); !has || !manual || err != nil {
		t.Errorf("held: %v, %v, %v", has, manual, err)
	}
	check(t, o.Outbox.Revive(entryOf, &OutboxEntry{Run: 1}))
	files, err := o.Outbox.List()
	if err != nil || len(files.Manual) != 0 || !slices.Equal(files.Pending, []EntryName{entryOf}) {
		t.Errorf("revived: %+v, %v", files, err)
	}
	check(t, o.Outbox.Rewrite(entryOf, &OutboxEntry{Run: 1, Attempts: 3}))
	if e, _, err := o.Outbox.Read(entryOf); err != nil || e.Attempts != 3 {
		t.Errorf("written again: %+v, %v", e, err)
	}
	check(t, o.Outbox.Remove(entryOf))
	if err := o.Outbox.Rewrite(entryOf, &OutboxEntry{Run: 1}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that was removed is written: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(o.Dir(), tmpDir)); err != nil || len(left) != 0 {
		t.Errorf("left in tmp/: %v, %v", left, err)
	}
	if has, _, err := o.Outbox.Has(entryOf); has || err != nil {
		t.Errorf("removed: %v, %v", has, err)
	}
}

// TestListOfEntries: the list contains the entries of the outbox and whether it is still the same
// folder.
func TestListOfEntries(t *testing.T) {
	t.Parallel()
	o := own(t)
	want := func(here bool, names ...EntryName) {
		t.Helper()
		got, is, err := o.Outbox.Listed()
		if err != nil || is != here || len(got) != len(names) {
			t.Fatalf("listed are %v, here %v, %v", got, is, err)
		}
		for _, name := range names {
			if !got[name] {
				t.Errorf("%s is not listed", name)
			}
		}
	}
	second := EntryName{ID: entryOf.ID, Place: 3, Kind: "s3"}
	want(true)
	check(t, o.Outbox.BeginList(nil))
	o.Outbox.Note(entryOf, second)
	want(true, entryOf, second)
	o.Outbox.Strike(entryOf)
	want(true, second)
	check(t, o.Outbox.TrimList())
	check(t, o.Outbox.BeginList(map[EntryName]bool{second: true}))
	o.Outbox.Note(entryOf)
	want(true, entryOf, second)
	f, err := os.OpenFile(filepath.Join(o.Dir(), outboxFile), os.O_APPEND|os.O_WRONLY, 0)
	check(t, err)
	_, err = f.WriteString("\x00\x00\x00-" + entryOf.String() + "\n\n+g-j_2025-1\n+" + entryOf.String()[:20])
	check(t, err)
	check(t, f.Close())
	want(true, second)
	check(t, os.Rename(o.Outbox.Dir(), o.Outbox.Dir()+".old"))
	check(t, os.Mkdir(o.Outbox.Dir(), 0o750))
	want(false, second)
}
