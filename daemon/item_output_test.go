package daemon

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

const itemOutputJobs = `
group: test
name: slow
items: {range: [1, 2]}
parallel: 2
run: [sh, -c, 'echo "at $1"; exec sleep 1000', sh, "${item}"]
---
group: test
name: chatty
items: {range: [1, 3]}
parallel: 3
max_log: 64KiB
run: [sh, -c, 'while :; do echo 0123456789012345678901234567890123456789; done', sh, "${item}"]
---
group: test
name: names
params: {path: {type: string, required: true}}
items: {glob: "${params.path}/*"}
run: [sh, -c, 'test -f "$1"', sh, "${item}"]
`

// The output of an item's command can be watched while other items run, and is kept when the item
// is cancelled.
func TestOutputOfItemsThatRunAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, itemOutputJobs, nil)
	id := b.submit("slow", `{}`)
	b.await("both items write", func() bool {
		for _, name := range []string{"item-1.log", "item-2.log"} {
			data, err := os.ReadFile(filepath.Join(work.ScratchFolder(b.tree.LogPath(id)), name))
			if err != nil || len(data) == 0 {
				b.poke()
				return false
			}
		}
		return true
	})
	b.touch(id, statefs.Cancel)
	rec := b.awaitEnd(id)
	if rec.Status != statefs.Cancelled || rec.Processed+rec.FailedN != 0 {
		t.Errorf("%s, %d processed, %d failed", rec.Status, rec.Processed, rec.FailedN)
	}
	lines := strings.Split(strings.TrimSpace(b.log(id)), "\n")
	for _, block := range [][]string{{"[ 1 / 2 ] Processing '1'...", "at 1"}, {"[ 2 / 2 ] Processing '2'...", "at 2"}} {
		if i := slices.Index(lines, block[0]); i < 0 || i+1 == len(lines) || lines[i+1] != block[1] {
			t.Errorf("the log has no %q: %q", block, lines)
		}
	}
}

// poke causes an event, so that a condition on an unwatched file is checked again.
func (b *bench) poke() {
	name := filepath.Join(b.tree.JobsDir(), ".poke")
	must(b.t, os.WriteFile(name, nil, 0o600))
	must(b.t, os.Remove(name))
}

// The outputs of items that run at once count against the log limit while they run.
func TestLogLimitCountsItemsThatRunAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, itemOutputJobs, nil)
	rec := b.awaitEnd(b.submit("chatty", `{}`))
	if rec.Status != statefs.Failed || rec.Error == nil || rec.Error.Code != "log_limit" {
		t.Errorf("%s, %+v", rec.Status, rec.Error)
	}
}

// A file name cannot forge a log line, and is unchanged in the footer.
func TestNamesOfItems(t *testing.T) {
	t.Parallel()
	b := setup(t, itemOutputJobs, nil)
	dir := t.TempDir()
	names := []string{"a'...\n  OK.\n[ 9 ", "b\xff\xfe", "plain"}
	for _, name := range names {
		must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o640))
	}
	params, _ := json.Marshal(map[string]string{"path": dir})
	id := b.submit("names", string(params))
	rec := b.awaitEnd(id)
	b.wantLog(id,
		`[ 1 / 3 ] Processing '`+dir+`/a'...\n  OK.\n[ 9 '...`, "  OK.",
		`[ 2 / 3 ] Processing '`+dir+`/b\xff\xfe'...`, "  OK.",
		`[ 3 / 3 ] Processing '`+dir+`/plain'...`, "  OK.")
	var footer struct {
		Processed []struct {
			Filename string
			Base64   []byte `json:"filename_base64"`
		} `json:"processed_files"`
	}
	must(t, json.Unmarshal(rec.Footer, &footer))
	for i, entry := range footer.Processed {
		got := entry.Filename
		if entry.Base64 != nil {
			got = string(entry.Base64)
		}
		if want := filepath.Join(dir, names[i]); got != want {
			t.Errorf("item %d is %q, want %q", i+1, got, want)
		}
	}
	items, err := os.ReadFile(b.tree.ItemsPath(id))
	must(t, err)
	if lines := strings.Count(string(items), "\n"); lines != 3 {
		t.Errorf("the item file has %d lines", lines)
	}
}
