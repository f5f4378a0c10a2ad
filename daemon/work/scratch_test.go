package work

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadResult(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ content, want, err string }{
		"object in order": {`{"z": 1, "a": {"b": [1, 2]}}`, `{"z":1,"a":{"b": [1, 2]}}`, ""},
		"empty object":    {`{}`, `{}`, ""},
		"array":           {`[1]`, "", "starts with ["},
		"text":            {`hello`, "", "not one JSON object"},
		"two objects":     {`{} {}`, "", "not one JSON object"},
		"torn":            {`{"a":`, "", "unexpected end"},
		"empty":           {``, "", "unexpected end"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := newScratch(filepath.Join(t.TempDir(), "op.log"), []byte("{}"), false)
			must(t, err)
			must(t, s.put("result.json", []byte(tc.content)))
			fields, err := s.readResult("result.json")
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want %q", err, tc.err)
				}
			} else if err != nil || string(object(fields)) != tc.want {
				t.Errorf("fields %s, %v", object(fields), err)
			}
			if kept, err := os.ReadFile(s.path("result.json")); err != nil || string(kept) != tc.content {
				t.Errorf("nobody has written down what it says, and it is %q, %v", kept, err)
			}
		})
	}
}

func TestNoResultIsNoError(t *testing.T) {
	t.Parallel()
	s, err := newScratch(filepath.Join(t.TempDir(), "op.log"), []byte("{}"), false)
	must(t, err)
	if fields, err := s.readResult("result.json"); fields != nil || err != nil {
		t.Errorf("%v %v", fields, err)
	}
	must(t, s.remove())
}

func TestLastOfEach(t *testing.T) {
	t.Parallel()
	got := strings.Join(lastOfEachName([]string{"A=1", "B=2", "A=3", "C=4", "B=5"}), " ")
	if got != "A=3 C=4 B=5" {
		t.Errorf("got %s", got)
	}
}

// TestAdoptedScratchGetsWhatItLacks removes a file from the folder of an adopted run, as a power
// cut may: it is created again, and the other files stay.
func TestAdoptedScratchGetsWhatItLacks(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "op.log")
	s, err := newScratch(log, []byte("{}"), false)
	must(t, err)
	must(t, s.put("result.json", []byte("{}")))
	must(t, os.Remove(s.path("progress")))
	must(t, os.WriteFile(s.path("params.json"), []byte(`{"kept":1}`), 0o640))
	again, err := newScratch(log, []byte("{}"), true)
	must(t, err)
	for name, want := range map[string]string{"params.json": `{"kept":1}`, "progress": "", "result.json": "{}"} {
		if got, err := os.ReadFile(again.path(name)); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v, want %q", name, got, err, want)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
