package jobsexample_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

func TestStreaming01(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.submit("testrouter", "streaming01", map[string]any{"files": 3})
	text, end := s.follow(id)
	if want := fmt.Sprintf("<start_json>\n{\"id\": \"%s\", \"total\": 3}\n</start_json>\n<log>\n",
		id); !strings.HasPrefix(text, want) {
		t.Errorf("the stream begins with\n%.200s\nwant\n%s", text, want)
	}
	var want []string
	for i := range 3 {
		name := fmt.Sprintf("document_%03d.pdf", i+1)
		want = append(want, fmt.Sprintf("[ %d / 3 ] Processing file '%s'...", i+1, name))
		if slices.Contains(end.FailedFiles, entry{Filename: name, Error: "Simulated processing error"}) {
			want = append(want, fmt.Sprintf("  FAIL: Simulated error for '%s'", name))
		} else {
			want = append(want, "  OK.")
		}
	}
	if got := logOf(t, text); !slices.Equal(got, want) {
		t.Errorf("log\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, e := range end.ProcessedFiles {
		if e.SizeBytes < 10_000 || e.SizeBytes > 500_000 {
			t.Errorf("%s has %d bytes", e.Filename, e.SizeBytes)
		}
	}
	result := "success"
	if len(end.FailedFiles) > 0 {
		result = "partial"
	}
	if end.State != "completed" || end.Result != result || end.Total == nil || *end.Total != 3 ||
		end.Processed != len(end.ProcessedFiles) || end.Failed != len(end.FailedFiles) || end.Processed+end.Failed != 3 {
		t.Errorf("footer %+v", end)
	}
}

func TestStreaming01WithoutFiles(t *testing.T) {
	t.Parallel()
	s := start(t)
	text, end := s.follow(s.submit("testrouter", "streaming01", map[string]any{"files": 0}))
	if !strings.Contains(text, "\"total\": 0}\n</start_json>\n<log>\n</log>\n<end_json>") || end.Result != "success" {
		t.Errorf("stream\n%s", text)
	}
}

func TestStreaming01PausesResumesAndCancels(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.submit("testrouter", "streaming01", map[string]any{"files": 1_000_000})
	await(t, s.dir+"/jobs", statefs.MarkerName(id, statefs.Running))
	s.ask(id, statefs.Pause)
	s.ask(id, statefs.Resume)
	s.ask(id, statefs.Pause)
	s.ask(id, statefs.Cancel)
	text, end := s.follow(id)
	if end.State != "cancelled" || end.Result != "cancelled" || end.Processed+end.Failed >= 1_000_000 {
		t.Errorf("footer %+v", end)
	}
	said := slices.DeleteFunc(logOf(t, text), func(line string) bool { return !strings.Contains(line, "requested") })
	want := []string{
		"  Pause requested, pausing...", "  Resume requested, resuming...", "  Pause requested, pausing...",
		"  Cancel requested while paused, stopping...",
	}
	if !slices.Equal(said, want) {
		t.Errorf("the log says %q, want %q", said, want)
	}
}
