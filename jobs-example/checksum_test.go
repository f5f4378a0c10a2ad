package jobsexample_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

func TestChecksum(t *testing.T) {
	t.Parallel()
	s := start(t)
	dir := t.TempDir()
	files := map[string]string{
		"a.txt": "alpha", "sub/empty": "", "sub/deep/er/it's.txt": "three", ".profile": "a dot file is a file",
		"large": strings.Repeat("more than one block ", 200_000),
	}
	var want []entry
	var bytes int64
	for name, content := range files {
		write(t, filepath.Join(dir, name), content)
		sum := sha256.Sum256([]byte(content))
		want = append(want, entry{Filename: name, SizeBytes: int64(len(content)), SHA256: hex.EncodeToString(sum[:])})
		bytes += int64(len(content))
	}
	write(t, filepath.Join(dir, ".git/config"), "left out")
	write(t, filepath.Join(dir, "sub/.cache/x"), "left out")
	for link, to := range map[string]string{"link": "a.txt", "loop": "..", "nowhere": "gone"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	id := s.submit("files", "checksum", map[string]any{"path": dir})
	text, end := s.follow(id)
	for _, list := range [][]entry{want, end.ProcessedFiles} {
		slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.Filename, b.Filename) })
	}
	if !slices.Equal(end.ProcessedFiles, want) {
		t.Errorf("processed_files\n%+v\nwant\n%+v", end.ProcessedFiles, want)
	}
	if end.Result != "success" || end.Total == nil || *end.Total != len(files) || end.Bytes != bytes {
		t.Errorf("footer %+v", end)
	}
	log := logOf(t, text)
	for i := 0; i+1 < len(log); i += 2 {
		if !strings.HasPrefix(log[i], "[ ") || log[i+1] != "  OK." {
			t.Errorf("the lines of a file do not stand together: %q, %q", log[i], log[i+1])
		}
	}
}

func TestChecksumOfNoFolder(t *testing.T) {
	t.Parallel()
	s := start(t)
	missing := filepath.Join(t.TempDir(), "missing")
	text, end := s.follow(s.submit("files", "checksum", map[string]any{"path": missing}))
	if end.State != "failed" || end.Result != "failure" ||
		!strings.Contains(text, "  ERROR: open "+missing+": no such file or directory; give the path") {
		t.Errorf("stream\n%s", text)
	}
}

// The first file is so large that it cannot end by itself. While the operation is paused in the middle of it,
// the next file disappears and the first becomes empty. A fifo is no folder, and a fifo among the files is
// skipped: the handler must not wait for a writer.
func TestChecksumWaitsForNoFifo(t *testing.T) {
	t.Parallel()
	s := start(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.txt"), "alpha")
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, end := s.follow(s.submit("files", "checksum", map[string]any{"path": dir})); end.Result != "success" ||
		len(end.ProcessedFiles) != 1 {
		t.Errorf("footer %+v", end)
	}
	text, end := s.follow(s.submit("files", "checksum", map[string]any{"path": fifo}))
	if end.Result != "failure" || !strings.Contains(text, "is not a folder") {
		t.Errorf("footer %+v of %s", end, text)
	}
}

func TestChecksumPausesInTheMiddleOfAFile(t *testing.T) {
	t.Parallel()
	s := start(t)
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		write(t, filepath.Join(dir, name), name)
	}
	if err := os.Truncate(filepath.Join(dir, "a"), 1<<40); err != nil {
		t.Fatal(err)
	}
	id := s.submit("files", "checksum", map[string]any{"path": dir, "workers": 1})
	await(t, s.day(id), id.String()+".progress") // written first when all names are known
	s.ask(id, statefs.Pause)
	if err := os.Remove(filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "a"), 0); err != nil {
		t.Fatal(err)
	}
	s.ask(id, statefs.Resume)
	_, end := s.follow(id)
	if end.Result != "partial" || len(end.ProcessedFiles) != 2 || end.ProcessedFiles[0].Filename != "a" ||
		end.ProcessedFiles[1].Filename != "c" {
		t.Errorf("footer %+v", end)
	}
	if len(end.FailedFiles) != 1 || end.FailedFiles[0].Filename != "b" ||
		!strings.Contains(end.FailedFiles[0].Error, "no such file") {
		t.Errorf("failed_files %+v", end.FailedFiles)
	}
}

func TestChecksumIsCancelledInTheMiddleOfAFile(t *testing.T) {
	t.Parallel()
	s := start(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a"), "")
	if err := os.Truncate(filepath.Join(dir, "a"), 1<<40); err != nil {
		t.Fatal(err)
	}
	id := s.submit("files", "checksum", map[string]any{"path": dir})
	await(t, s.dir+"/jobs", statefs.MarkerName(id, statefs.Running))
	s.ask(id, statefs.Cancel)
	if _, end := s.follow(id); end.State != "cancelled" || end.Processed+end.Failed != 0 {
		t.Errorf("footer %+v", end)
	}
}
