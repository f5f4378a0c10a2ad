package main

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/internal/prooftest"
)

// TestMain lets the test binary play the roles too: it is what starts itself again.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	// The race detector would have each of the processes wait a second at its end.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// What the numbers are is no matter here: a loaded machine may be slow.
func TestEveryRowHasAValue(t *testing.T) {
	out := filepath.Join(t.TempDir(), "results.json")
	some := prooftest.Count("a,c,h", "", "") // "" is all of them
	o, err := parseOptions([]string{"-quick", "-only", some, "-dir", t.TempDir(), "-out", out})
	if err != nil {
		t.Fatal(err)
	}
	if err := measure(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var results Results
	if err := json.Unmarshal(data, &results); err != nil {
		t.Fatal(err)
	}
	if want := cmp.Or(len(o.only), len(sections)); len(results.Sections) != want {
		t.Errorf("%d sections, want %d", len(results.Sections), want)
	}
	for _, s := range results.Sections {
		if len(s.Rows) == 0 {
			t.Errorf("section %s has no rows", s.Letter)
		}
		// With few of them, memory may not grow and a clock tick may not pass.
		few := s.Letter == "d" || s.Letter == "e"
		for _, r := range s.Rows {
			mayBeNothing := few || strings.HasPrefix(r.Name, "memory more") || strings.Contains(r.Name, ": memory of each")
			// The file and the marker's rename may come out of the kernel's queue in one read, and then have one time.
			oneRead := strings.Contains(r.Name, "counted from the file") && r.Value == 0
			if r.Name == "" || r.Count == 0 || r.Value <= 0 && !mayBeNothing && !oneRead {
				t.Errorf("section %s, %q: value %v %s of %d", s.Letter, r.Name, r.Value, r.Unit, r.Count)
			}
		}
	}
	left, err := filepath.Glob(filepath.Join(o.dir, "jobdir-bench-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
