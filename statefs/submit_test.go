package statefs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestSubmitWritesRecordAndMarker(t *testing.T) {
	t.Parallel()
	for _, durability := range []Durability{Power, Process} {
		t.Run(string(durability), func(t *testing.T) {
			t.Parallel()
			tree := openTree(t, t.TempDir(), Options{Durability: durability, Now: frozen})
			source := []byte("group: g\nname: j\n")
			sum := sha256.Sum256(source)
			hash := hex.EncodeToString(sum[:])
			total := int64(20)
			rec, err := tree.Submit(t.Context(), Submission{
				Group: "g", Job: "j", Params: json.RawMessage(`{"a":1}`), Tags: []string{"x"}, Total: &total,
				Definition: source, DefinitionHash: hash, CreatedBy: "test", OnDisconnect: "cancel",
			})
			check(t, err)
			marker := MarkerName(rec.ID, Queued)
			wantNames(t, tree.JobsDir(), marker)
			wantNames(t, filepath.Join(tree.Dir(), tmpDir))
			wantNames(t, filepath.Join(tree.Dir(), operationsDir), "2025-11-26")
			wantNames(t, filepath.Join(tree.Dir(), operationsDir, "2025-11-26"), rec.ID.String()+".json")

			content, err := os.ReadFile(filepath.Join(tree.JobsDir(), marker))
			check(t, err)
			if string(content) != "2025-11-26T13:07:00.123456+01:00\n" {
				t.Errorf("the marker holds %q", content)
			}
			back, err := tree.ReadRecord(rec.ID)
			check(t, err)
			if want := `{"id":"` + rec.ID.String() + `","total":20}`; string(back.Header) != want {
				t.Errorf("the header is %s", back.Header)
			}
			if back.Status != Queued || back.Definition != hash || string(back.Params) != `{"a":1}` ||
				back.CreatedBy != "test" || back.OnDisconnect != "cancel" {
				t.Errorf("the record is %+v", back)
			}
			if len(back.Transitions) != 1 || back.Transitions[0].Cause != CauseSubmit || back.Transitions[0].To != Queued {
				t.Errorf("its history is %+v", back.Transitions)
			}
			kept, err := tree.Definition(hash)
			check(t, err)
			if string(kept) != string(source) {
				t.Errorf("the definition kept is %q", kept)
			}
		})
	}
}

func TestSubmitWithoutATotal(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{Durability: Process})
	rec := submit(t, tree)
	if want := `{"id":"` + rec.ID.String() + `","total":null}`; string(rec.Header) != want || string(rec.Params) != "{}" {
		t.Errorf("header %s, params %s", rec.Header, rec.Params)
	}
}

func TestSubmitRefusesBeforeItWrites(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{Durability: Process})
	for name, s := range map[string]Submission{
		"a group with a slash":     {Group: "../g", Job: "j"},
		"an endpoint in capitals":  {Group: "G", Job: "j"},
		"a long endpoint":          {Group: strings.Repeat("g", 60), Job: "job"},
		"a path for a hash":        {Group: "g", Job: "j", DefinitionHash: "../../jobs/x"},
		"a hash in capitals":       {Group: "g", Job: "j", DefinitionHash: strings.Repeat("A", 64)},
		"params that are not JSON": {Group: "g", Job: "j", Params: json.RawMessage(`{`)},
	} {
		if rec, err := tree.Submit(t.Context(), s); err == nil {
			t.Errorf("%s: accepted as %s", name, rec.ID)
		}
	}
	wantNames(t, tree.JobsDir())
	wantNames(t, filepath.Join(tree.Dir(), definitionsDir))
	live, err := tree.live.IDs()
	check(t, err)
	if len(live) != 0 {
		t.Errorf("the list of live operations has %v", live)
	}
}

func TestDefinitionIsKeptOnceAndMended(t *testing.T) {
	t.Parallel()
	dir, hash := t.TempDir(), strings.Repeat("ab", 32)
	s := Submission{Group: "g", Job: "j", Definition: []byte("name: j\n"), DefinitionHash: hash}
	path := filepath.Join(dir, definitionsDir, hash+".yaml")

	first := openTree(t, dir, Options{Durability: Power})
	_, err := first.Submit(t.Context(), s)
	check(t, err)
	before, err := os.Stat(path)
	check(t, err)
	again := openTree(t, dir, Options{Durability: Power})
	_, err = again.Submit(t.Context(), s)
	check(t, err)
	after, err := os.Stat(path)
	check(t, err)
	if !os.SameFile(before, after) {
		t.Error("a definition that was there was written again")
	}

	check(t, os.Truncate(path, 0)) // as after a power cut
	mending := openTree(t, dir, Options{Durability: Process})
	_, err = mending.Submit(t.Context(), s)
	check(t, err)
	if kept, err := mending.Definition(hash); err != nil || string(kept) != "name: j\n" {
		t.Errorf("the emptied definition is now %q, %v", kept, err)
	}
	if _, err := mending.Definition("../storage"); err == nil {
		t.Error("a path was taken for a hash")
	}
}

// TestNoMarkerWithoutItsRecord: during submits, a listing finds the record of each marker.
func TestNoMarkerWithoutItsRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	reader := openTree(t, dir, Options{Durability: Process})
	writer := openTree(t, dir, Options{Durability: Process})
	var submitting sync.WaitGroup
	for range 4 {
		submitting.Go(func() {
			for range 100 {
				if _, err := writer.Submit(t.Context(), Submission{Group: "g", Job: "j"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { submitting.Wait(); close(done) }()
	seen := make(map[ID]bool)
	for running := true; running; {
		select {
		case <-done:
			running = false // and one last listing
		default:
		}
		listing, err := reader.List()
		check(t, err)
		for _, e := range listing.Markers {
			if seen[e.ID] {
				continue
			}
			seen[e.ID] = true
			if rec, err := reader.ReadRecord(e.ID); err != nil || rec.Status != Queued {
				t.Errorf("marker %s: %v", e.File, err)
			}
			if stamp, err := reader.Stamp(e.File); err != nil || stamp.At.IsZero() {
				t.Errorf("marker %s: %v", e.File, err)
			}
		}
	}
	if len(seen) != 400 {
		t.Errorf("saw %d of 400", len(seen))
	}
}

func TestSubmitThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{Durability: Process})
	first := submit(t, tree)
	check(t, os.Rename(tree.JobsDir(), tree.JobsDir()+".away")) // the marker cannot be created
	if _, err := tree.Submit(t.Context(), Submission{Group: "g", Job: "j"}); !errors.Is(err, fs.ErrNotExist) ||
		!strings.Contains(err.Error(), "folder "+tree.JobsDir()+" is gone") {
		t.Errorf("without jobs/: %v", err)
	}
	check(t, os.Rename(tree.JobsDir()+".away", tree.JobsDir()))
	wantNames(t, filepath.Join(tree.Dir(), operationsDir, first.ID.Day()), first.ID.String()+".json")
	wantNames(t, filepath.Join(tree.Dir(), tmpDir))
	live, err := tree.live.IDs()
	check(t, err)
	if len(live) != 1 || !live[first.ID] {
		t.Errorf("the list of live operations has %v", live)
	}
}

func TestSubmitNeverReplacesARecord(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{Durability: Process})
	rec := submit(t, tree)
	if err := tree.publish([]*Record{rec}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the same ID again: %v", err)
	}
	if _, err := tree.ReadRecord(rec.ID); err != nil {
		t.Errorf("the first one is gone: %v", err)
	}
	wantNames(t, tree.JobsDir(), MarkerName(rec.ID, Queued))
}
