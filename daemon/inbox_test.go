package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
)

// inboxBench is a bench whose daemon accepts submissions by file.
type inboxBench struct {
	*bench
	answers *watch.Dir[string]
}

func setupInbox(t *testing.T) *inboxBench {
	t.Helper()
	b := &inboxBench{bench: prepare(t, handlerJobs, testHandlers)}
	answers, err := watch.OpenDir(b.tree.NewDir(), func(name string) (string, bool) { return name, true }, watch.Options{})
	must(t, err)
	ended := make(chan error, 1)
	go func() { ended <- answers.Run(t.Context()) }()
	t.Cleanup(func() { must(t, <-ended) })
	b.answers = answers
	return b
}

func (b *inboxBench) begin() {
	b.t.Helper()
	b.config.Intake = submit.NewIntake(submit.Config{Tree: b.tree})
	b.start()
}

func (b *inboxBench) path(name string) string { return filepath.Join(b.tree.NewDir(), name) }

// drop moves a submission into new/, as a person does.
func (b *inboxBench) drop(name, content string) {
	b.t.Helper()
	temp := filepath.Join(b.t.TempDir(), name)
	must(b.t, os.WriteFile(temp, []byte(content), 0o600))
	must(b.t, os.Rename(temp, b.path(name+".json")))
}

// answer waits for the answer to a submission and removes it.
func (b *inboxBench) answer(name string) (accepted bool, text string) {
	b.t.Helper()
	for {
		for suffix, accepted := range map[string]bool{".accepted": true, ".rejected": false} {
			data, err := os.ReadFile(b.path(name + suffix))
			if err == nil {
				must(b.t, os.Remove(b.path(name+suffix)))
				return accepted, strings.TrimSuffix(string(data), "\n")
			}
		}
		select {
		case <-b.answers.Ready():
			b.answers.Take()
		case <-b.t.Context().Done():
			b.t.Fatalf("no answer to %s", name)
		}
	}
}

func (b *inboxBench) accepted(name string) []statefs.ID {
	b.t.Helper()
	accepted, text := b.answer(name)
	if !accepted {
		b.t.Fatalf("%s is rejected: %s", name, text)
	}
	var ids []statefs.ID
	for line := range strings.Lines(text) {
		id, err := statefs.ParseID(strings.TrimSpace(line))
		must(b.t, err)
		ids = append(ids, id)
	}
	return ids
}

func TestSubmitByFile(t *testing.T) {
	t.Parallel()
	b := setupInbox(t)
	b.drop("before", `{"job":"test/wait","params":{},"tags":["t"]}`)
	b.begin()
	first := b.accepted("before")
	rec, err := b.tree.ReadRecord(first[0])
	must(t, err)
	if len(first) != 1 || rec.CreatedBy != "new/before" || !slices.Equal(rec.Tags, []string{"t"}) {
		t.Errorf("%v, by %q, tags %v", first, rec.CreatedBy, rec.Tags)
	}
	b.awaitState(first[0], statefs.Running)
	b.drop("same", `{"job":"test/wait"}`)
	if again := b.accepted("same"); again[0] != first[0] {
		t.Errorf("the same again is %s", again[0])
	}
	b.touch(first[0], statefs.Cancel)
	b.awaitEnd(first[0])
	b.drop("before", `{"job":"test/wait","params":{},"tags":["t"]}`)
	if again := b.accepted("before"); again[0] == first[0] {
		t.Error("another file of the same name and content is taken for the first")
	}
	b.drop("list", `[{"job":"test/wait","key":"a","idempotency_key":"i"},{"job":"test/wait"}]`)
	if ids := b.accepted("list"); len(ids) != 2 || ids[0] != ids[1] {
		t.Errorf("a list is %v", ids)
	}
	must(t, b.stop()) // waits for what follows the answer
	for _, folder := range []string{b.tree.NewDir(), filepath.Join(b.dir, "taken")} {
		entries, err := os.ReadDir(folder)
		must(t, err)
		if len(entries) != 0 {
			t.Errorf("%s has %v", folder, entries)
		}
	}
}

func TestSubmissionsThatAreRejected(t *testing.T) {
	t.Parallel()
	b := setupInbox(t)
	b.begin()
	for name, c := range map[string]struct{ content, reason string }{
		"empty":   {"", "'job': it is missing"},
		"cut":     {`{"job":"test/wait"`, "it is cut off"},
		"no_json": {"start it, please", "not a JSON object"},
		"no_job":  {`{"params":{}}`, "'job': it is missing"},
		"unknown": {`{"job":"test/no"}`, "There is no job no in group test"},
		"param":   {`{"job":"test/wait","params":{"x":1}}`, "unknown parameter 'x'"},
		"option":  {`{"job":"test/wait","priority":"high"}`, "'priority': '\"high\"' is not an integer"},
		"deep": {
			`{"job":"test/wait","params":` + strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_001),
			"it nests deeper than 64 levels",
		},
		"twice": {`{"job":"test/wait","job":"test/wait"}`, "'job': it is given twice"},
		"many": {
			"[" + strings.Repeat(`{"job":"test/wait"},`, 10_000) + `{"job":"test/wait"}]`,
			"it has 10001 entries, and at most 10000",
		},
		"list":       {`[{"job":"test/wait"},{"job":"test/no"}]`, "entry 1: There is no job no in group test"},
		"not_utf8":   {"{\"job\":\"test/\xff\"}", "not UTF-8"},
		"two\nlines": {`{"job":"x"}`, "'x' is not the address of a job"},
	} {
		b.drop(name, c.content)
		if accepted, text := b.answer(name); accepted || !strings.Contains(text, c.reason) || strings.Contains(text, "\n") {
			t.Errorf("%s: accepted %t, %q, want %q", name, accepted, text, c.reason)
		}
	}
	must(t, os.Symlink("/etc/passwd", b.path("link.json")))
	must(t, syscall.Mkfifo(b.path("fifo.json"), 0o600))
	must(t, os.Mkdir(b.path("folder.json"), 0o700))
	huge, err := os.Create(b.path("huge.json.part"))
	must(t, err)
	must(t, huge.Truncate(statefs.MaxSubmission+1))
	must(t, huge.Close())
	must(t, os.Rename(huge.Name(), b.path("huge.json")))
	for name, reason := range map[string]string{
		"link": "no regular file", "fifo": "no regular file",
		"folder": "no regular file", "huge": "larger than 33554432 bytes",
	} {
		if accepted, text := b.answer(name); accepted || !strings.Contains(text, reason) {
			t.Errorf("%s: accepted %t, %q", name, accepted, text)
		}
	}
	must(t, b.stop()) // waits for what follows the answer
	if left, err := b.config.Owner.Inbox.List(); len(left) != 0 {
		t.Errorf("still there: %v, %v", left, err)
	}
	kept, err := filepath.Glob(filepath.Join(b.dir, "corrupt", "*_link.json*"))
	must(t, err)
	if len(kept) != 2 {
		t.Errorf("of the link is kept %q", kept)
	}
	b.drop(".hidden", `{"job":"test/wait"}`)
	must(t, os.WriteFile(b.path("other.txt"), nil, 0o600))
	listing, err := b.tree.List()
	must(t, err)
	if len(listing.Markers) != 0 {
		t.Errorf("%d operations", len(listing.Markers))
	}
}

// A submission that is interrupted at any point is submitted once.
func TestSubmissionsThatWereCutOff(t *testing.T) {
	t.Parallel()
	b := setupInbox(t)
	const content = `[{"job":"test/count","params":{"n":1}},{"job":"test/count","params":{"n":2}}]`

	// Taken, but not submitted. Another submission of the same name waits in new/.
	owner, err := statefs.Own(b.tree)
	must(t, err)
	b.drop("x", content)
	must(t, owner.Inbox.Take("x"))
	b.drop("x", `{"job":"test/wait"}`)
	must(t, owner.Release())
	b.begin()
	b.await("both are carried out", func() bool {
		return len(b.byFile("x", statefs.Completed)) == 2 && len(b.byFile("x", statefs.Queued, statefs.Running)) == 1
	})
	must(t, b.stop())
	must(t, os.Remove(b.path("x.accepted")))

	// Taken and submitted, and the operations have ended, but there is no answer yet.
	owner, err = statefs.Own(b.tree)
	must(t, err)
	b.drop("x", content)
	must(t, owner.Inbox.Take("x"))
	data, identity, err := owner.Inbox.Read("x")
	must(t, err)
	intake := submit.NewIntake(submit.Config{Tree: b.tree})
	intake.Ready()
	entries, err := submit.ParseList(data)
	must(t, err)
	for i := range entries {
		entries[i].Options.IdempotencyKey = fmt.Sprintf("file:%s:%d", identity, i)
	}
	requests, err := submit.Requests(b.catalog, entries)
	must(t, err)
	for i := range requests {
		requests[i].By = "new/x"
	}
	made, err := intake.Submit(t.Context(), requests...)
	must(t, err)
	for _, o := range made {
		must(t, o.Record.Apply(o.State, statefs.CauseCancel, b.now()))
		o.Record.FinishedSeq = 9
		must(t, owner.WriteEnd(o.Record))
		must(t, owner.RemoveMarker(o.Record.ID, o.State))
	}
	must(t, owner.Release())
	b.begin()
	if got := b.accepted("x"); len(got) != 2 || got[0] != made[0].Record.ID || got[1] != made[1].Record.ID {
		t.Errorf("submitted again as %v, first as %v", got, made)
	}
	must(t, b.stop())
	if _, err := os.Lstat(filepath.Join(b.dir, "taken", "x.json")); !os.IsNotExist(err) {
		t.Errorf("the submission is still in taken/: %v", err)
	}
}

// byFile returns the operations that were submitted by file and whose record has one of the states.
func (b *inboxBench) byFile(name string, states ...statefs.State) []*statefs.Record {
	b.t.Helper()
	files, err := filepath.Glob(filepath.Join(b.dir, "operations", "*", "*.json"))
	must(b.t, err)
	var found []*statefs.Record
	for _, file := range files {
		id, err := statefs.ParseID(strings.TrimSuffix(filepath.Base(file), ".json"))
		must(b.t, err)
		if rec, err := b.tree.ReadRecord(id); err == nil && rec.CreatedBy == "new/"+name &&
			slices.Contains(states, rec.Status) {
			found = append(found, rec)
		}
	}
	return found
}

func TestManySubmissionsByFile(t *testing.T) {
	t.Parallel()
	b := setupInbox(t)
	b.begin()
	var made sync.Map
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { made.Store(b.take("wait", `{}`).Record.ID, true) })
	}
	for i := range 50 {
		b.drop(fmt.Sprint("n", i), `{"job":"test/wait"}`)
	}
	all.Wait()
	for i := range 50 {
		made.Store(b.accepted(fmt.Sprint("n", i))[0], true)
	}
	count := 0
	made.Range(func(any, any) bool { count++; return true })
	if count != 1 {
		t.Errorf("they came to %d operations", count)
	}
}

// The reason to wait of a submission for a closed lane is written to a file in new/. The submission
// is carried out as soon as the lane is opened, however long the lane was to be closed.
func TestSubmissionWaitsForItsLane(t *testing.T) {
	t.Parallel()
	b := setupInbox(t)
	b.config.Intake = submit.NewIntake(submit.Config{
		Tree:  b.tree,
		Admit: func(drafts []*statefs.Record) error { return b.daemon.Admit(drafts) },
	})
	b.start()
	for i, lane := range []string{statefs.DefaultLane, statefs.AllLanes} {
		file := statefs.LaneFile{Lane: lane, Control: statefs.LaneClosed}
		until := time.Now().Add(time.Hour)
		must(t, b.tree.Lanes.Hold(file, statefs.LaneHold{Until: &until, Reason: "a holiday"}))
		b.daemon.Lanes.Apply()
		b.drop(lane, fmt.Sprintf(`{"job":"test/count","params":{"n":%d}}`, i+1))
		if why := b.waits(lane); !strings.Contains(why, "closed until ") || !strings.HasSuffix(why, ": a holiday\n") {
			t.Errorf("%s waits for %q", lane, why)
		}
		_, err := b.tree.Lanes.Release(file)
		must(t, err)
		b.accepted(lane)
	}
	must(t, b.stop())
	if left, err := filepath.Glob(b.path("*")); len(left) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}

// waits returns the reason that a submission waits for, once it is written.
func (b *inboxBench) waits(name string) string {
	b.t.Helper()
	for {
		if data, err := os.ReadFile(b.path(name + ".waiting")); err == nil {
			return string(data)
		}
		select {
		case <-b.answers.Ready():
			b.answers.Take()
		case <-b.t.Context().Done():
			b.t.Fatalf("nobody says what %s waits for", name)
		}
	}
}

// The reason file of a removed submission is removed by the next sweep.
func TestStaleWaitingAnswersAreSwept(t *testing.T) {
	t.Parallel()
	b := setupInbox(t)
	owner, err := statefs.Own(b.tree)
	must(t, err)
	b.drop("there", `{"job":"test/wait"}`)
	must(t, owner.Inbox.Take("there"))
	for _, name := range []string{"there", "gone"} {
		must(t, owner.Inbox.WriteWaiting(name, "why"))
	}
	must(t, owner.Inbox.Sweep())
	must(t, owner.Release())
	if left, err := filepath.Glob(b.path("*")); len(left) != 1 || filepath.Base(left[0]) != "there.waiting" {
		t.Errorf("%v are left, %v", left, err)
	}
}
