// Mutants tests the tests: it breaks the code on which the promises rest, in one place at a time, in a copy
// of the tree, and expects the test suites to fail each time.
//
//	tree ──copy──▶ temporary folder ──replace one text──▶ go test of the suites that should notice ──▶ red: good
//
// The list below is the authority. A text that does not occur exactly once is an error, so the list follows
// the code. These are errors too, because they look like success: a mutant that does not build, a suite that
// ends without a failed test, and a suite that fails or is skipped without any mutant; each suite runs once
// on the unchanged code, in the same way and with the same counts.
//
// Arguments select: only mutants are tried whose name or package contains one of them.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// mutant is one change that must not go unnoticed.
type mutant struct {
	name     string
	file     string
	old, new string
	run      string // names of tests, as for go test -run
	pkg      string
	hangs    bool // that the suite does not end is what the mutant does
}

// longest bounds one suite; soon bounds a suite that hangs, which counts as a failure too.
const (
	longest = 30 * time.Minute
	soon    = 2 * time.Minute
)

var mutants = []mutant{
	{
		"a checkpoint before the index", "statefs/commit/files.go", "if l.o.Followed != nil {", "if false {",
		"TestCheckpointsGoNoFurtherThanTheFollower", "./statefs/commit", false,
	},
	{
		"the index says more than it has", "daemon/history/follow.go", "upTo := s.numbers.leastLine(durable)", "upTo := durable",
		"TestCheckpointWaitsForTheIndex", "./daemon/history", false,
	},
	{
		"an index ahead of the journal is trusted", "statefs/replay.go", "if after > last || ", "if ",
		"TestIndexThatCannotFollowIsBuilt", "./daemon/history", false,
	},
	{
		"the lines behind the index are not entered", "daemon/history/follow.go",
		"s.enqueue(changesOf(s, s.missed)...)", "_ = changesOf(s, s.missed)",
		"TestIndexIsTrustedAfterACrash", "./daemon/history", false,
	},
	{
		"an index of another storage is trusted", "statefs/replay.go", "if storage != j.Storage() {", "if false {",
		"TestIndexThatCannotFollowIsBuilt", "./daemon/history", false,
	},
	{
		"a record is not synced", "statefs/files/write.go", "w.durable || always", "false",
		"TestEveryCrashPoint", "./internal/torture", false,
	},
	{
		"the folder of the day is not synced", "statefs/publish.go", "go func() { errs <- t.syncDay(day) }()",
		"go func() { _ = day; errs <- nil }()",
		"TestEveryCrashPoint", "./internal/torture", false,
	},
	{
		"jobs/ is not synced", "statefs/publish.go", "err := t.jobsSync.Sync()", "err := error(nil)",
		"TestEveryCrashPoint", "./internal/torture", false,
	},
	{
		"taken/ is not synced", "statefs/owner.go", "go func() { taken <- o.Requests.sync() }()", "go func() { taken <- nil }()",
		"TestEveryCrashPoint", "./internal/torture", false,
	},
	{
		"the name of a new storage is not synced", "statefs/tree.go", "if err == nil || t.options.Durability != Power {",
		"if err == nil || true {",
		"TestEveryCrashPoint", "./internal/torture", false,
	},
	{
		"work starts before running is durable", "daemon/begin.go", "if err := s.commit(op.id(), change{}, syncFiles); err != nil {",
		"if err := error(nil); err != nil {",
		"TestEveryCrashPoint", "./internal/torture", false,
	},
	{
		"a request comes before the record says that the work has begun", "daemon/decisions.go",
		"if !op.unrecordedStart.IsZero() {", "if false {",
		"TestEveryCrashPoint", "./internal/torture", false,
	},
	{
		"a start that only the marker shows is forgotten", "daemon/begin.go",
		"if err := rec.RecordStart(at); err != nil {", "if _ = at; true {",
		"TestRecovery", "./daemon", false,
	},
	{
		"who comes after an end that was cut short is not woken", "daemon/adopt.go", "rc.enqueueChildren(rec.ID)", "_ = rec",
		"TestChainAfterAnEndThatWasCutShort", "./daemon", false,
	},
	{
		"a pause on a full disk has no event", "daemon/reconcile.go",
		"if files.DiskFull(err) && op.managed {", "if false {",
		"TestEventsOnAFullDisk", "./daemon", false,
	},
	{
		"a transition is handed on twice", "daemon/live/change.go", "next.LastTransition = hashOf(", "_ = hashOf(",
		"TestChangesHaveWhatIsDurableOnce", "./daemon/live", false,
	},
	{
		"slots that were being fired are forgotten", "daemon/trigger/schedules.go", "if job.state.Firing != nil {", "if false {",
		"TestAFiringThatWasCutShort", "./daemon", false,
	},
	{
		"an entry of the outbox is written after the end", "daemon/end.go",
		"\tif err := e.Deliveries.Write(rec); err != nil {\n\t\treturn err\n\t}\n",
		"\tdefer func() { _ = e.Deliveries.Write(rec) }()\n",
		"TestEveryCrashPoint/deliver", "./internal/torture", false,
	},
	{
		"outbox/ is not synced", "statefs/outbox.go", "func (o *OwnerOutbox) Sync() error { return o.sync.Sync() }",
		"func (o *OwnerOutbox) Sync() error { return nil }",
		"TestEveryCrashPoint/deliver", "./internal/torture", false,
	},
	{
		"an entry goes before the record says what became of it", "daemon/delivery/try.go",
		"if err := d.amend(rec, name, state, reason, output); err != nil {",
		"if err := errors.Join(d.owner.Outbox.Remove(name), d.amend(rec, name, state, reason, output)); err != nil {",
		"TestEveryCrashPoint/deliver", "./internal/torture", false,
	},
	{
		"files that are to be delivered are not synced", "daemon/delivery/try.go", "if files {", "if files && false {",
		"TestEveryCrashPoint/deliver", "./internal/torture", false,
	},
	{
		"an older try delays a requested one", "daemon/outbox/plan.go", "if !t.probeRequested {", "if true {",
		"TestProbeDuringTries", "./daemon/outbox", false,
	},
	{
		"a file is made over what is there", "statefs/files/system_linux.go",
		"unix.AT_FDCWD, from, to, unix.RENAME_NOREPLACE", "unix.AT_FDCWD, from, to, 0",
		".", "./statefs/files", false,
	},
	{
		"a marker is renamed over what is there", "statefs/files/system_linux.go",
		"fd, from, to, unix.RENAME_NOREPLACE", "fd, from, to, 0",
		".", "./statefs/files", false,
	},
	{
		"an overflow asks for no rescan", "statefs/watch/watcher.go", "\t\ts.overflows.Add(1)\n\t}\n\ts.lost()\n",
		"\t\ts.overflows.Add(1)\n\t}\n",
		".", "./statefs/watch", false,
	},
	{
		"the errors of the watcher are not read", "statefs/watch/watcher.go",
		"events, faults = s.watcher.Events, s.watcher.Errors", "events, faults = s.watcher.Events, nil",
		"TestUnreliableEvents", "./statefs/watch", true,
	},
	{
		"a request that is asked again is forgotten", "daemon/commit.go",
		"if !slices.ContainsFunc(op.unsettled(), needed) {", "if !slices.ContainsFunc(op.pendingRequests[:0], needed) {",
		"TestPauseThatIsAskedAgainBeforeTheWorkStops", "./daemon", false,
	},
	{
		"a marker is known by its inode number alone", "statefs/files/disk.go",
		"(i.Born.IsZero() || other.Born.IsZero() || i.Born.Equal(other.Born))", "true",
		"TestIdentitySame", "./statefs/files", false,
	},
	{
		"a keeper lists before what is begun is there", "daemon/keeper/client.go",
		"for len(s.starting) > 0 && s.daemons.isCurrent(c) {", "for false {",
		"TestListWaitsForStartUnderWay", "./daemon/keeper", false,
	},
	{
		"a warden does nothing", "daemon/keeper/warden.go", "ended, err := o.carryOut(ctx)",
		"ended, err := 0, error(nil)",
		"TestWardenComesAndGoes", "./daemon/keeper", false,
	},
	{
		"a command that the work did not claim goes on", "daemon/work/run.go", "\t\tr.endUnclaimed(err)\n", "",
		"TestItemsThatCannotBeListedAnyMore", "./daemon", false,
	},
	{
		"a group is removed before it is empty", "daemon/keeper/cgroup.go",
		"\terr := awaitEmpty(dir, grace)\n\tif errors.Is(err, os.ErrDeadlineExceeded) {",
		"\terr := error(nil)\n\tif errors.Is(err, os.ErrDeadlineExceeded) {",
		"TestGroupOfWhatIsDying", "./daemon/keeper", false,
	},
	{
		"a look forgets what the one before left there", "daemon/markers.go", "statefs.MarkerBit(op.state) | op.extraNames",
		"statefs.MarkerBit(op.state)",
		"TestASightAsks", "./daemon", false,
	},
	{
		"a step begins before the record says it", "daemon/steps.go",
		"if err := s.commitRecord(op, &rec); err != nil {",
		"op.rec = &rec\n\tif err := s.commit(op.id(), change{}, syncFiles); err != nil {",
		"TestRandomSteps", "./daemon", false,
	},
	{
		"the end of a step is not in the record", "daemon/finish.go",
		"f.applyStepEnd(op.rec, op.run, op.endCause)", "_ = op.endCause",
		"TestStepsRunInTheirOrder|TestGates", "./daemon", false,
	},
	{
		"a request that is made again counts again", "daemon/decisions.go",
		"dc.requests.olderThanState(op, r) || alreadyApplied(op.rec, r)", "false",
		"TestRandomSteps|TestRequestThatIsLeftAfterItsEffect", "./daemon", false,
	},
	{
		"an optional step is tried before what it needs", "statefs/steps/plan.go",
		"return s != nil && !s.Status.Done()", "return s != nil && false",
		"TestRandomGraphs", "./statefs/steps", false,
	},
	{
		"a cancel between two steps is forgotten", "daemon/decide/work.go",
		`awaited := s.Pausing || s.Ending != ""`, "awaited := false",
		"TestCancelBetweenSteps", "./daemon", false,
	},
	{
		"a request beside the end of a step is forgotten", "daemon/decisions.go",
		"if len(sight.Requests)+len(op.pendingRequests) > 0 || op.run == nil && len(op.awaiting) > 0 {", "if false {",
		"TestRequestBesideTheEndOfAStep", "./daemon", false,
	},
	{
		"what trails has no marker by its record", "daemon/markers.go", "case rec.Trailing:", "case false:",
		"TestTrailingMarkerThatIsRemovedMeanwhile", "./daemon", false,
	},
	{
		"a lane starts one more than it has room for", "daemon/queue/quota.go", "len(r.holders) >= r.capacity",
		"len(r.holders) > r.capacity",
		"TestRules|TestQueueFollowsTheRule", "./daemon/queue", false,
	},
	{
		"a key that is held is offered", "daemon/queue/key.go",
		"\t\tcase len(k.holders) > 0, strict && k.first.line != l:\n\t\t\tl.class.lines.Remove(l)\n",
		"\t\tcase strict && k.first.line != l:\n\t\t\tl.class.lines.Remove(l)\n",
		"TestRules|TestQueueFollowsTheRule", "./daemon/queue", false,
	},
	{
		"who cannot start holds up its key", "daemon/queue/key.go",
		"(first == nil || k.before(head, first)) && l.class.open(now)", "first == nil || k.before(head, first)",
		"TestRules|TestQueueFollowsTheRule", "./daemon/queue", false,
	},
	{
		"an urgent one waits behind a patient head of its key", "daemon/queue/key.go", "best.moreUrgent(k.best)",
		"best.submittedBefore(k.best)",
		"TestRules|TestQueueFollowsTheRule", "./daemon/queue", false,
	},
}

func main() {
	if err := run(selected(os.Args[1:])); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// selected returns the mutants whose name or package contains one of the words, or all without words.
func selected(words []string) []mutant {
	if len(words) == 0 {
		return mutants
	}
	return slices.DeleteFunc(slices.Clone(mutants), func(m mutant) bool {
		return !slices.ContainsFunc(words, func(word string) bool { return strings.Contains(m.name+" "+m.pkg, word) })
	})
}

func run(mutants []mutant) error {
	dir, err := os.MkdirTemp("", "jobdir-mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // in the folder for temporary files
	if err := copyTree(dir); err != nil {
		return fmt.Errorf("copy the tree: %w", err)
	}
	whole := make(map[string]bool)
	for _, m := range mutants {
		if whole[m.pkg+" "+m.run] {
			continue
		}
		begun := time.Now()
		if out, err := suite(dir, m); err != nil || !strings.Contains(out, "\n--- PASS: ") ||
			strings.Contains(out, "--- SKIP: "+m.run) {
			return fmt.Errorf("%s %s does not pass without any mutant (%w):\n%s", m.pkg, m.run, err, out)
		}
		whole[m.pkg+" "+m.run] = true
		fmt.Fprintf(os.Stdout, "%-9s %-45s %-20s %-22s %4.0f s\n", "green", "as it is", m.pkg, m.run,
			time.Since(begun).Seconds())
	}
	survivors := 0
	for _, m := range mutants {
		begun := time.Now()
		verdict, err := try(dir, m)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if verdict != "red" {
			survivors++
		}
		fmt.Fprintf(os.Stdout, "%-9s %-45s %-20s %-22s %4.0f s\n", verdict, m.name, m.pkg, m.run, time.Since(begun).Seconds())
	}
	if len(mutants) == 0 {
		return errors.New("no mutant has such a name or package")
	}
	if survivors > 0 {
		return fmt.Errorf("%d of %d mutants went unnoticed", survivors, len(mutants))
	}
	fmt.Fprintf(os.Stdout, "all %d mutants turned the tests red\n", len(mutants))
	return nil
}

// copyTree copies the files of the main module into dir.
func copyTree(dir string) error {
	root, err := os.OpenRoot(".")
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // opened for reading
	return fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || name == "bin" || name == "storage"):
			return fs.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(dir, name), 0o750)
		case !entry.Type().IsRegular():
			return nil
		}
		data, err := root.ReadFile(name)
		if err != nil {
			return err
		}
		return write(filepath.Join(dir, name), data)
	})
}

func write(name string, data []byte) error {
	return os.WriteFile(name, data, 0o600) //nolint:forbidigo // a copy of the sources, no state file
}

// try applies a mutant, runs its suite and takes the mutant back.
func try(dir string, m mutant) (verdict string, err error) {
	name := filepath.Join(dir, m.file)
	source, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	if n := bytes.Count(source, []byte(m.old)); n != 1 {
		return "", fmt.Errorf("%s holds %q %d times, want once: bring the list of mutants up to date", m.file, m.old, n)
	}
	if err := write(name, bytes.Replace(source, []byte(m.old), []byte(m.new), 1)); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, write(name, source)) }()
	out, failed := suite(dir, m)
	late := strings.Contains(out, "panic: test timed out")
	switch {
	case strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]"):
		return "", fmt.Errorf("it does not build: %s", out)
	case strings.Contains(out, "--- SKIP: "+m.run):
		return "", fmt.Errorf("its suite is skipped here: %s", out)
	case failed == nil, late && !m.hangs:
		return "UNNOTICED", nil // a suite that was only slow did not fail
	case !strings.Contains(out, "--- FAIL: ") && !late:
		return "", fmt.Errorf("its suite ended without a test that failed (%w): %s", failed, out)
	}
	return "red", nil
}

// suite runs the tests of a mutant in the copy: all crash states, until the first failure. The error is that of go
// test.
func suite(dir string, m mutant) (out string, err error) {
	limit := longest
	if m.hangs {
		limit = soon
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-vet=off", "-failfast", "-v", "-timeout", limit.String(),
		"-run", m.run, m.pkg)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "JOBDIR_TORTURE=every")
	text, err := cmd.CombinedOutput()
	return string(text), err
}
