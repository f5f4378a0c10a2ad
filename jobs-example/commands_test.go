package jobsexample_test

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

func TestCompress(t *testing.T) {
	t.Parallel()
	s := start(t)
	dir := t.TempDir()
	files := map[string]string{
		"a.log": strings.Repeat("again and again ", 1000), "deep/er/a.log": "same name", "-v.log": "like an option",
		"sp ace/it's $HOME `id`.log": "like a script", "empty.log": "",
	}
	for name, content := range files {
		write(t, filepath.Join(dir, name), content)
	}
	write(t, filepath.Join(dir, "other.txt"), "another suffix")
	id := s.submit("files", "compress", map[string]any{"path": dir})
	text, end := s.follow(id)
	if end.Result != "success" || end.Processed != len(files) || len(end.Artifacts) != len(files) {
		t.Fatalf("stream\n%s", text)
	}
	for _, e := range end.ProcessedFiles {
		name := strings.TrimPrefix(e.Filename, "./")
		if e.SizeBytes != int64(len(files[name])) || e.CompressedBytes == 0 {
			t.Errorf("%+v", e)
		}
		if !slices.Contains(end.Artifacts, name+".gz") {
			t.Errorf("artifacts %q lack %q", end.Artifacts, name)
		}
		if got := unzip(t, filepath.Join(s.day(id), id.String()+".artifacts", name+".gz")); got != files[name] {
			t.Errorf("%s became %q", name, got)
		}
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("the file itself: %v", err)
		}
	}
}

func unzip(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestShellTask(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.submit("commands", "shell-task", map[string]any{"steps": 2, "seconds": 0.01})
	text, end := s.follow(id)
	want := []string{"[ 1 / 2 ] Working on step 1...", "  OK.", "[ 2 / 2 ] Working on step 2...", "  OK."}
	if got := logOf(t, text); !slices.Equal(got, want) {
		t.Errorf("log %q, want %q", got, want)
	}
	if end.Result != "success" || end.Steps != 2 || end.SecondsEach != 0.01 {
		t.Errorf("footer %+v", end)
	}
	op, err := s.Operation(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if op.Progress == nil || op.Progress.Done != 2 || op.Progress.Total == nil || *op.Progress.Total != 2 ||
		op.Progress.Phase != "working" {
		t.Errorf("progress %+v", op.Progress)
	}
}

func TestShellTaskPausesResumesAndCancels(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.submit("commands", "shell-task", map[string]any{"seconds": 3600})
	await(t, s.dir+"/jobs", statefs.MarkerName(id, statefs.Running))
	s.ask(id, statefs.Pause)
	s.ask(id, statefs.Resume)
	s.ask(id, statefs.Cancel)
	text, end := s.follow(id)
	if end.State != "cancelled" {
		t.Errorf("stream\n%s", text)
	}
	// The command may print its first line before, between or after them.
	said := slices.DeleteFunc(logOf(t, text), func(line string) bool { return !strings.Contains(line, "requested") })
	want := []string{"  Pause requested, pausing...", "  Resume requested, resuming...", "  Cancel requested, stopping..."}
	if !slices.Equal(said, want) {
		t.Errorf("the log says %q, want %q", said, want)
	}
}

// The service is away twice, and then there: the operation waits in between, and ends well.
func TestNightly(t *testing.T) {
	t.Parallel()
	s := start(t)
	text, end := s.follow(s.submit("commands", "nightly", map[string]any{"away": 2}))
	for _, line := range []string{
		"  Attempt 1 of 5 failed: exit code 75. It is tried again in ",
		"  Attempt 2 of 5 failed: exit code 75. It is tried again in ",
		"  Run 3 begins.\n  done in run 3\n",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("the stream lacks %q", line)
		}
	}
	if end.Result != "success" || end.State != "completed" {
		t.Errorf("stream\n%s", text)
	}
}

// Parts that failed are done again, and no others; in the end one is left.
func TestParts(t *testing.T) {
	t.Parallel()
	s := start(t)
	text, end := s.follow(s.submit("commands", "parts", nil))
	for line, times := range map[string]int{
		"  there is nothing to work on\n": 3, "  the service is busy\n": 2, "  part 1 is done in run 1\n": 1,
		"  part 3 is done in run 2\n":                  1,
		"  Attempt 1 of 3 failed: 3 of 6 items failed": 1, "  Goes on after 5 finished items.\n": 1,
	} {
		if got := strings.Count(text, line); got != times {
			t.Errorf("the stream has %q %d times, want %d", line, got, times)
		}
	}
	if end.Result != "partial" || end.State != "completed" || end.Processed != 5 || end.Failed != 1 {
		t.Errorf("stream\n%s", text)
	}
}
