package statefs

import (
	"errors"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var entryOf = EntryName{ID: mustID("g-j_2025-11-26_13-07-00_p1_r8"), Place: 2, Kind: "webhook"}

func mustID(s string) ID {
	id, err := ParseID(s)
	if err != nil {
		panic(err)
	}
	return id
}

func TestEntryNames(t *testing.T) {
	t.Parallel()
	for file, manual := range map[string]bool{
		entryOf.String() + ".pending":       false,
		entryOf.String() + ".failed_manual": true,
	} {
		name, got, err := ParseEntryName(file)
		if err != nil || name != entryOf || got != manual {
			t.Errorf("%s: %+v, %v, %v", file, name, got, err)
		}
	}
	id := entryOf.ID.String()
	for _, file := range []string{
		"", id, id + ".pending", id + ".0-webhook.pending", id + ".01-webhook.pending", id + ".1-.pending",
		id + ".1-webhook.done", id + ".1-webhook.pending~",
		id + ".1-WEBHOOK.pending", id + ".99999-webhook.pending", "x.1-webhook.pending", "../" + id + ".1-webhook.pending",
	} {
		if name, _, err := ParseEntryName(file); err == nil {
			t.Errorf("%q is %+v", file, name)
		}
	}
}

func TestEntriesComeAndGo(t *testing.T) {
	t.Parallel()
	o := own(t)
	if _, _, err := o.Outbox.Read(entryOf); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("an entry that is not there: %v", err)
	}
	at := time.Date(2025, 11, 26, 13, 7, 0, 123456000, time.UTC)
	want := &OutboxEntry{Run: 3, CreatedAt: at, Attempts: 7, LastAt: &at, LastError: "connection refused", Until: &at}
	check(t, o.Outbox.Write(entryOf, want))
	check(t, o.Outbox.Sync())
	for _, manual := range []bool{false, true, false} {
		got, is, err := o.Outbox.Read(entryOf)
		if err != nil || is != manual || !reflect.DeepEqual(got, want) {
			t.Fatalf("read %+v, %v, %v", got, is, err)
		}
		files, err := o.Outbox.List()
		if err != nil || len(files.Pending)+len(files.Manual) != 1 || slices.Contains(files.Manual, entryOf) != manual {
			t.Fatalf("listed %+v, %v", files, err)
		}
		if held, err := o.Outbox.Undelivered(); err != nil || !held[entryOf.ID] {
			t.Fatalf("undelivered %v, %v", held, err)
		}
		if manual {
			check(t, o.root.Rename(entryOf.file(entryManual), entryOf.file(entryPending)))
		} else {
			check(t, o.Outbox.Hold(entryOf))
		}
	}
	check(t, o.Outbox.Remove(entryOf))
	check(t, o.Outbox.Remove(entryOf))
	if held, err := o.Outbox.Undelivered(); err != nil || len(held) != 0 {
		t.Fatalf("undelivered %v, %v", held, err)
	}
}

func TestOddEntries(t *testing.T) {
	t.Parallel()
	o := own(t)
	put(t, o.Tree, "", outboxDir, entryOf.ID.String()+".webhook-1")
	put(t, o.Tree, "", outboxDir, "notes.txt")
	put(t, o.Tree, "", outboxDir, ".hidden")
	files, err := o.Outbox.List()
	if err != nil || len(files.Others) != 2 {
		t.Errorf("listed %+v, %v", files, err)
	}
	if held, err := o.Outbox.Undelivered(); err != nil || !held[entryOf.ID] {
		t.Errorf("what may be meant for it holds it: %v, %v", held, err)
	}
	for text, problem := range map[string]string{
		"": "cannot be read", "{}": "no version", `{"version":1,"run":-1}`: "negative",
		`{"version":2,"run":"x"}`: "newer version", "[]": "cannot be read",
	} {
		put(t, o.Tree, text, outboxDir, entryOf.String()+".pending")
		if _, _, err := o.Outbox.Read(entryOf); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%q: %v, want %q", text, err, problem)
		}
	}
	check(t, o.Outbox.Quarantine(entryOf, false, "it is of nobody"))
	if got := glob(t, filepath.Join(o.Dir(), corruptDir, "*.reason")); len(got) != 1 {
		t.Errorf("set aside are %v", got)
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	check(t, err)
	return names
}

func FuzzEntry(f *testing.F) {
	f.Add([]byte(`{"version":1,"run":3,"created_at":"2025-11-26T13:07:00.123456+01:00","attempts":2,"last_error":"refused"}`))
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"version":9}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := decodeEntry("f", data)
		if err != nil {
			return
		}
		again, err := encodeEntry(entryOf, e)
		if err != nil {
			return // a time that RFC 3339 cannot express
		}
		back, err := decodeEntry("f", again)
		if err != nil || back.Run != e.Run || back.Attempts != e.Attempts || !back.CreatedAt.Equal(e.CreatedAt) {
			t.Fatalf("%q came back as %q: %v", data, again, err)
		}
	})
}

func FuzzEntryName(f *testing.F) {
	f.Add(entryOf.String() + ".pending")
	f.Add(entryOf.String() + ".failed_manual")
	f.Fuzz(func(t *testing.T, file string) {
		name, manual, err := ParseEntryName(file)
		if err != nil {
			return
		}
		suffix := entryPending
		if manual {
			suffix = entryManual
		}
		if name.String()+suffix != file {
			t.Fatalf("%q came back as %q", file, name.String()+suffix)
		}
	})
}
