package statefs

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// given collects every ID and number that a storage has given out.
type given struct {
	mu      sync.Mutex
	numbers map[uint64]ID
}

func (g *given) add(t *testing.T, id ID) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if before, twice := g.numbers[id.Sequence()]; twice {
		t.Errorf("number %d was given twice: %s and %s", id.Sequence(), before, id)
	}
	g.numbers[id.Sequence()] = id
}

// frozen is a clock that does not advance: every operation has the same second.
func frozen() time.Time { return testTime }

func TestNumbersInOneSecondOfOneProcess(t *testing.T) {
	t.Parallel()
	dir, all := t.TempDir(), given{numbers: make(map[uint64]ID)}
	// Two trees, like a daemon and a command in one process; more numbers than one block has.
	trees := []*Tree{
		openTree(t, dir, Options{Durability: Process, Now: frozen}),
		openTree(t, dir, Options{Durability: Process, Now: frozen}),
	}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for range 150 {
				n, err := trees[i%2].numbers.take()
				if err != nil {
					t.Error(err)
					return
				}
				id, err := MakeID("g-j", frozen(), os.Getpid(), n)
				if err != nil {
					t.Error(err)
					return
				}
				all.add(t, id)
			}
		})
	}
	wg.Wait()
	if len(all.numbers) != 16*150 {
		t.Errorf("%d numbers for %d calls", len(all.numbers), 16*150)
	}
}

func TestSubmitsOfSeveralProcessesInOneDirectory(t *testing.T) {
	t.Parallel()
	const each = 100
	tree := openTree(t, t.TempDir(), Options{Durability: Process, Now: frozen})
	all := given{numbers: make(map[uint64]ID)}
	processes := []*process{
		start(t, "submit", tree.Dir(), strconv.Itoa(each)),
		start(t, "submit", tree.Dir(), strconv.Itoa(each)),
	}
	for range each {
		all.add(t, submit(t, tree).ID)
	}
	for _, p := range processes {
		for range each {
			id, err := ParseID(p.line(t))
			check(t, err)
			all.add(t, id)
		}
	}
	listing, err := tree.List()
	check(t, err)
	if len(listing.Markers) != 3*each {
		t.Errorf("%d markers after %d submits", len(listing.Markers), 3*each)
	}
	for id := range listing.IDs() {
		if rec, err := tree.ReadRecord(id); err != nil || rec.Header == nil {
			t.Errorf("record of %s: %v", id, err)
		}
		if all.numbers[id.Sequence()] != id {
			t.Errorf("%s was not given out", id)
		}
	}
	wantNames(t, filepath.Join(tree.Dir(), tmpDir))
}

// TestNumbersNeverComeAgain: a daemon in a container always has PID 1, and the clock may be set
// back to the second of an earlier operation.
func TestNumbersNeverComeAgain(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(t *testing.T, dir string){
		"restart after an unclean end": func(*testing.T, string) {},
		"storage.json deleted": func(t *testing.T, dir string) {
			t.Helper()
			check(t, os.Remove(filepath.Join(dir, storageFile)))
		},
		"storage.json empty": func(t *testing.T, dir string) {
			t.Helper()
			check(t, os.WriteFile(filepath.Join(dir, storageFile), nil, 0o600))
		},
		"storage.json of zero bytes": func(t *testing.T, dir string) {
			t.Helper()
			check(t, os.WriteFile(filepath.Join(dir, storageFile), make([]byte, 300), 0o600))
		},
		"storage.json with a lost counter": func(t *testing.T, dir string) {
			t.Helper()
			check(t, os.WriteFile(filepath.Join(dir, storageFile), []byte(`{"version":1}`), 0o600))
		},
		"storage.json replaced by a link": func(t *testing.T, dir string) {
			t.Helper()
			check(t, os.Remove(filepath.Join(dir, storageFile)))
			check(t, os.Symlink("/etc/hostname", filepath.Join(dir, storageFile)))
		},
		"records pruned": func(t *testing.T, dir string) {
			t.Helper()
			check(t, os.RemoveAll(filepath.Join(dir, operationsDir)))
			check(t, os.RemoveAll(filepath.Join(dir, jobsDir)))
		},
		"records pruned and storage.json deleted": func(t *testing.T, dir string) {
			t.Helper()
			check(t, os.RemoveAll(filepath.Join(dir, operationsDir)))
			check(t, os.RemoveAll(filepath.Join(dir, jobsDir)))
			check(t, os.Remove(filepath.Join(dir, storageFile)))
		},
		"only markers are left": func(t *testing.T, dir string) {
			t.Helper()
			check(t, os.RemoveAll(filepath.Join(dir, operationsDir)))
			check(t, os.Remove(filepath.Join(dir, liveFile)))
			check(t, os.Remove(filepath.Join(dir, storageFile)))
		},
		"only a request in taken/ is left": func(t *testing.T, dir string) {
			t.Helper()
			for _, marker := range names(t, filepath.Join(dir, jobsDir)) {
				id, _, _ := strings.Cut(marker, ".")
				check(t, os.Rename(filepath.Join(dir, jobsDir, marker), filepath.Join(dir, takenDir, id+".pause_requested")))
			}
			check(t, os.RemoveAll(filepath.Join(dir, operationsDir)))
			check(t, os.Remove(filepath.Join(dir, liveFile)))
			check(t, os.Remove(filepath.Join(dir, storageFile)))
		},
		"only a file in corrupt/ is left": func(t *testing.T, dir string) {
			t.Helper()
			for _, marker := range names(t, filepath.Join(dir, jobsDir)) {
				check(t, os.Rename(filepath.Join(dir, jobsDir, marker),
					filepath.Join(dir, corruptDir, "2025-11-26T13-07-00.000000_"+marker)))
			}
			check(t, os.RemoveAll(filepath.Join(dir, operationsDir)))
			check(t, os.Remove(filepath.Join(dir, liveFile)))
			check(t, os.Remove(filepath.Join(dir, storageFile)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, all := t.TempDir(), given{numbers: make(map[uint64]ID)}
			clock := testTime
			for range 4 {
				// A new tree has no state of the one before, which is closed only at the end of the
				// test.
				tree := openTree(t, dir, Options{Durability: Process, Now: func() time.Time { return clock }})
				for range 3 {
					rec := submit(t, tree)
					all.add(t, rec.ID)
				}
				clock = clock.Add(-time.Hour)
				damage(t, dir)
			}
		})
	}
}

func TestNewerStorageIsRefused(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{Durability: Process})
	newer := put(t, tree, `{"version":3,"next_sequence":{"changed":"meaning"}}`, storageFile)
	if _, err := Own(tree); !errors.Is(err, ErrNewerVersion) || !strings.Contains(err.Error(), "start the newer version") {
		t.Errorf("Own: %v", err)
	}
	if _, err := tree.Submit(t.Context(), Submission{Group: "g", Job: "j"}); !errors.Is(err, ErrNewerVersion) {
		t.Errorf("Submit: %v", err)
	}
	data, err := os.ReadFile(newer)
	check(t, err)
	if !strings.Contains(string(data), "changed") {
		t.Errorf("the newer file was replaced by %s", data)
	}
	if _, held := tree.Holder(); held {
		t.Error("the refused daemon still holds the storage")
	}
}

func TestFirstNumberIsOne(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{})
	if rec := submit(t, tree); rec.ID.Sequence() != 1 {
		t.Errorf("a new storage begins with %s", rec.ID)
	}
	info, err := tree.numbers.storageInfo()
	check(t, err)
	if info != (storageInfo{Version: storageVersion, NextSequence: 1 + sequenceBlock}) {
		t.Errorf("storage.json has %+v", info)
	}
}

// TestNumbersEndInAnErrorOnly: an impossible counter is neither used nor guessed.
func TestNumbersEndInAnErrorOnly(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		counter, said string
		starts        bool // a daemon may start: existing operations go on
	}{
		"16 digits":        {"1000000000000000", "1000000000000000", false},
		"no block is left": {"999999999999000", "999999999999000", true},
		"more than 64 bit": {"100000000000000000000", "100000000000000000000", false},
		"negative":         {"-5", "-5", false},
		"a fraction":       {"1.5", "1.5", false},
		"a text":           {`"12"`, "string", false},
		"an object":        {`{"a":1}`, "object", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree := openTree(t, t.TempDir(), Options{Durability: Process})
			path := put(t, tree, `{"version":1,"next_sequence":`+tc.counter+`,"mark":"MARK"}`, storageFile)
			_, err := tree.Submit(t.Context(), Submission{Group: "g", Job: "j"})
			if !errors.Is(err, ErrBadCounter) || errors.Is(err, ErrBadID) || !strings.Contains(err.Error(), tc.said) ||
				!strings.Contains(err.Error(), path) {
				t.Errorf("the submit says: %v", err)
			}
			wantNames(t, tree.JobsDir())
			if mark, err := MarkOf(tree.Dir()); err != nil || !strings.HasPrefix(mark, MarkName+"=MARK.") {
				t.Errorf("the mark is %q, %v", mark, err)
			}
			o, err := Own(tree)
			if err == nil {
				check(t, o.Release())
			}
			if tc.starts != (err == nil) || !tc.starts && !errors.Is(err, ErrBadCounter) {
				t.Errorf("a daemon that starts says: %v", err)
			}
		})
	}
}
