package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs"
)

const itemJobs = `
group: test
name: files
params: {path: {type: string, required: true}}
items: {glob: "${params.path}/**"}
run: [sh, -c, 'case "$1" in *bad*) echo cannot; exit 4;; esac; echo "{\"lines\": $(wc -l < "$1")}" > $JOBDIR_RESULT', sh, "${item}"]
---
group: test
name: numbers
params: {n: {type: integer, required: true}}
items: {range: [1, "${params.n}"]}
parallel: 4
run: [sh, -c, 'echo "out $1"; [ $(($1 % 3)) != 0 ]', sh, "${item}"]
---
group: test
name: strict
items: {range: [1, 3]}
fail_when: any
run: [sh, -c, '[ "$1" != 2 ]', sh, "${item}"]
---
group: test
name: slow
items: {range: [1, 3]}
run: [sh, -c, 'echo "at $1"; sleep 1000', sh, "${item}"]
`

func TestItemsOfAGlob(t *testing.T) {
	t.Parallel()
	b := setup(t, itemJobs, nil)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.txt": "1\n", "sub/bad.txt": "", "sub/c d.txt": "1\n2\n",
		".git/x": "hidden",
	} {
		must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o750))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o640))
	}
	params, _ := json.Marshal(map[string]string{"path": dir})
	id := b.submit("files", string(params))
	rec := b.awaitEnd(id)
	b.wantLog(id,
		"[ 1 / 3 ] Processing '"+dir+"/a.txt'...", "  OK.",
		"[ 2 / 3 ] Processing '"+dir+"/sub/bad.txt'...", "cannot", "  FAIL: exit code 4",
		"[ 3 / 3 ] Processing '"+dir+"/sub/c d.txt'...", "  OK.")
	want := fmt.Sprintf(`{"result":"partial","state":"completed","total":3,"processed":2,"failed":1,`+
		`"processed_files":[{"filename":"%[1]s/a.txt","size_bytes":2,"lines":1},{"filename":"%[1]s/sub/c d.txt","size_bytes":4,"lines":2}],`+
		`"failed_files":[{"filename":"%[1]s/sub/bad.txt","error":"exit code 4: cannot"}]}`, dir)
	if string(rec.Footer) != want {
		t.Errorf("footer\n%s\nwant\n%s", rec.Footer, want)
	}
	if u := rec.Resources; u == nil || u.PeakMemory == 0 || u.UserSeconds+u.SystemSeconds == 0 || u.OutputBytes == 0 {
		t.Errorf("used: %+v", u)
	}
}

// TestManyItems runs more items than the footer lists (except with -short), several at a time, and
// checks every line.
func TestManyItems(t *testing.T) {
	t.Parallel()
	b := setup(t, itemJobs, nil)
	n := prooftest.Count(160, 1600, 1600)
	id := b.submit("numbers", fmt.Sprintf(`{"n": %d}`, n))
	rec := b.awaitEnd(id)
	var footer struct {
		Total, Processed, Failed int
		Items                    string
		ProcessedFiles           []struct{ Filename string } `json:"processed_files"`
		FailedFiles              []struct{ Error string }    `json:"failed_files"`
	}
	must(t, json.Unmarshal(rec.Footer, &footer))
	const most = 1000 // the footer lists these
	items := ""
	if n-n/3 > most {
		items = id.String() + ".items.ndjson"
	}
	if footer.Total != n || footer.Processed != n-n/3 || footer.Failed != n/3 ||
		len(footer.ProcessedFiles) != min(most, n-n/3) ||
		len(footer.FailedFiles) != n/3 || footer.Items != items {
		t.Errorf("total %d, processed %d (%d listed), failed %d (%d listed), items %q", footer.Total, footer.Processed,
			len(footer.ProcessedFiles), footer.Failed, len(footer.FailedFiles), footer.Items)
	}
	data, err := os.ReadFile(b.tree.ItemsPath(id))
	must(t, err)
	if got := strings.Count(string(data), "\n"); got != n {
		t.Errorf("%d lines in the item file", got)
	}
	log := b.log(id)
	for _, i := range []int{1, 3, n} {
		end := "  OK."
		if i%3 == 0 {
			end = "  FAIL: exit code 1"
		}
		want := fmt.Sprintf("[ %d / %d ] Processing '%d'...\nout %d\n%s\n", i, n, i, i, end)
		if !strings.Contains(log, want) {
			t.Errorf("the log has no %q", want)
		}
	}
}

func TestFailWhenAny(t *testing.T) {
	t.Parallel()
	b := setup(t, itemJobs, nil)
	rec := b.awaitEnd(b.submit("strict", `{}`))
	if rec.Status != statefs.Failed || rec.Error.Code != "items_failed" ||
		rec.Error.Message != "1 of 3 items failed; the last one, '2': exit code 1" {
		t.Errorf("%s %+v", rec.Status, rec.Error)
	}
}

func TestPauseInTheMiddleOfAnItem(t *testing.T) {
	t.Parallel()
	b := setup(t, itemJobs, nil)
	id := b.submit("slow", `{}`)
	b.await("the first item runs", func() bool {
		log, err := os.ReadFile(b.tree.LogPath(id))
		return err == nil && strings.HasSuffix(string(log), "at 1\n")
	})
	b.touch(id, statefs.Pause)
	b.awaitState(id, statefs.Paused)
	b.touch(id, statefs.Resume)
	b.awaitState(id, statefs.Running)
	b.touch(id, statefs.Cancel)
	b.awaitEnd(id)
	b.wantLog(id, "[ 1 / 3 ] Processing '1'...", "at 1", linePause, lineResume, lineCancel)
}

// A panic in the goroutine of one item fails that operation; the daemon and the other operations go
// on.
func TestPanicInAnItemsGoroutine(t *testing.T) {
	t.Parallel()
	b := prepare(t, itemJobs, nil)
	var starts atomic.Int64
	b.config.Environ = func() []string {
		if starts.Add(1) == 3 {
			panic("no environment")
		}
		return os.Environ()
	}
	b.start()
	id := b.submit("numbers", `{"n": 9}`)
	rec := b.awaitEnd(id)
	if rec.Status != statefs.Failed || rec.Error == nil || rec.Error.Code != "panic" ||
		!strings.Contains(rec.Error.Message, "the work panicked: no environment") {
		t.Errorf("status %s, %+v", rec.Status, rec.Error)
	}
	if rec := b.awaitEnd(b.submit("numbers", `{"n": 2}`)); rec.Status != statefs.Completed {
		t.Errorf("the next operation: %s", rec.Status)
	}
}
