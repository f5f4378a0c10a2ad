package statefs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// swept plans and sweeps: both must find the same, and planning must change nothing. It returns
// "action file" for each finding.
func swept(t *testing.T, o *Owner, managed func(ID) bool) []string {
	t.Helper()
	before := tree(t, o.Dir())
	plan, err := o.PlanSweep(managed)
	check(t, err)
	if after := tree(t, o.Dir()); !slices.Equal(before, after) {
		t.Errorf("planning changed\n%s\nto\n%s", before, after)
	}
	done, err := o.Sweep(managed)
	check(t, err)
	summary := func(findings []Finding) []string {
		var all []string
		for _, f := range findings {
			if f.Reason == "" {
				t.Errorf("%+v has no reason", f)
			}
			all = append(all, string(f.Action)+" "+f.File)
		}
		slices.Sort(all)
		return all
	}
	if !slices.Equal(summary(plan), summary(done)) {
		t.Errorf("planned %q, done %q", summary(plan), summary(done))
	}
	return summary(done)
}

// tree lists every file with its time and content.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	check(t, filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		check(t, err)
		info, err := entry.Info()
		check(t, err)
		line := path + " " + info.Mode().String()
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			check(t, err)
			line += " " + info.ModTime().String() + " " + string(data)
		}
		all = append(all, line)
		return nil
	}))
	return all
}

func wantSwept(t *testing.T, o *Owner, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := swept(t, o, nil); !slices.Equal(got, want) {
		t.Errorf("swept\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func deadPID(t *testing.T) int {
	t.Helper()
	p := start(t, "wait")
	p.line(t)
	p.kill(t)
	return p.cmd.Process.Pid
}

func TestSweepOfForeignOperations(t *testing.T) {
	t.Parallel()
	o := own(t)
	living := start(t, "wait")
	living.line(t)
	// The files of a living program: markers, requests for it, and files with other suffixes.
	alive := foreignID(t, living.cmd.Process.Pid)
	files := []string{
		MarkerName(alive, Running), MarkerName(alive, Paused), RequestName(alive, Pause),
		alive.String() + ".checkpoint",
	}
	for _, name := range files {
		path := put(t, o.Tree, time.Now().Format(StampFormat), jobsDir, name)
		age(t, path, 10*time.Hour)
	}
	gone := foreignID(t, deadPID(t))
	put(t, o.Tree, "", jobsDir, MarkerName(gone, Running))
	put(t, o.Tree, "", jobsDir, RequestName(gone, Cancel)) // young, but its program is gone
	wantSwept(t, o, "remove jobs/"+MarkerName(gone, Running), "remove jobs/"+RequestName(gone, Cancel))
	wantNames(t, o.JobsDir(), files...)

	// The same PID, and a marker older than that process.
	for _, name := range files[:2] {
		put(t, o.Tree, time.Now().Add(-time.Hour).Format(StampFormat)+"\n", jobsDir, name)
	}
	elsewhere, err := MakeID("elsewhere", testTime, living.cmd.Process.Pid, 8)
	check(t, err)
	put(t, o.Tree, time.Now().Add(-time.Hour).Format(StampFormat)+"\n"+`{"pid_namespace":"pid:[1]"}`, jobsDir,
		MarkerName(elsewhere, Running))
	// One marker that it may have created itself is enough to leave all alone.
	put(t, o.Tree, "", jobsDir, files[0])
	wantSwept(t, o)
	put(t, o.Tree, time.Now().Add(-time.Hour).Format(StampFormat)+"\n", jobsDir, files[0])
	wantSwept(t, o, "remove jobs/"+files[0], "remove jobs/"+files[1], "remove jobs/"+files[2])
	wantNames(t, o.JobsDir(), files[3], MarkerName(elsewhere, Running))

	wantSwept(t, o) // without a marker, too, the file of a living program stays

	living.kill(t)
	age(t, filepath.Join(o.JobsDir(), files[3]), time.Hour)
	wantSwept(t, o, "move_to_corrupt jobs/"+files[3])
	wantNames(t, o.JobsDir(), MarkerName(elsewhere, Running))
}

func TestSweepOfRequestsWithoutAnOperation(t *testing.T) {
	t.Parallel()
	o := own(t)
	id := foreignID(t, os.Getpid())
	old := RequestName(id, Pause)
	age(t, put(t, o.Tree, "", jobsDir, old), 6*time.Second)
	young := RequestName(id, Cancel)
	age(t, put(t, o.Tree, "", jobsDir, young), 3*time.Second)
	future := RequestName(id, Retry)
	age(t, put(t, o.Tree, "", jobsDir, future), -time.Hour)
	live := submit(t, o.Tree).ID
	kept := RequestName(live, Pause)
	age(t, put(t, o.Tree, "", jobsDir, kept), time.Hour)

	if got := swept(t, o, func(ID) bool { return true }); len(got) > 0 {
		t.Errorf("swept %q of operations that a daemon has in hand", got)
	}
	// The clock of the storage decides, so that the test does not wait.
	o.options.Now = time.Now
	plan, err := o.PlanSweep(nil)
	check(t, err)
	if len(plan) != 1 || plan[0].File != "jobs/"+old || plan[0].Action != SweepRemove {
		t.Errorf("planned %+v", plan)
	}
	o.options.Now = func() time.Time { return time.Now().Add(10 * time.Second) }
	wantSwept(t, o, "remove jobs/"+old, "remove jobs/"+young)
	wantNames(t, o.JobsDir(), future, kept, MarkerName(live, Queued))
}

func TestSweepOfMarkersAndRecordsThatDisagree(t *testing.T) {
	t.Parallel()
	o := own(t)
	agree, ended, orphan := submit(t, o.Tree), submit(t, o.Tree), submit(t, o.Tree)
	check(t, ended.Apply(Queued, CauseCancel, testTime))
	check(t, o.WriteRecord(ended)) // and the marker was not removed
	check(t, os.Remove(recordPath(o.Tree, orphan.ID)))
	unreadable, next, two := submit(t, o.Tree), submit(t, o.Tree), submit(t, o.Tree)
	put(t, o.Tree, "{", dayFile(unreadable.ID, ".json"))
	next.Next = Paused
	check(t, o.WriteRecord(next))
	check(t, o.RestoreMarker(two.ID, Paused, testTime))
	missing := submit(t, o.Tree)
	check(t, os.Remove(filepath.Join(o.JobsDir(), MarkerName(missing.ID, Queued))))

	wantSwept(t, o,
		"remove_ended jobs/"+MarkerName(ended.ID, Queued),
		"move_to_corrupt jobs/"+MarkerName(orphan.ID, Queued),
		"report "+dayFile(unreadable.ID, ".json"))
	wantNames(t, o.JobsDir(), MarkerName(agree.ID, Queued), MarkerName(unreadable.ID, Queued), MarkerName(next.ID, Queued),
		MarkerName(two.ID, Queued), MarkerName(two.ID, Paused))
	corrupt := names(t, filepath.Join(o.Dir(), corruptDir))
	if len(corrupt) != 2 || !strings.HasSuffix(corrupt[0], MarkerName(orphan.ID, Queued)) ||
		corrupt[1] != corrupt[0]+".reason" {
		t.Errorf("corrupt/ holds %q", corrupt)
	}
}

func TestSweepLeavesUnreadable(t *testing.T) {
	t.Parallel()
	o := own(t)
	newer, folder := submit(t, o.Tree), submit(t, o.Tree)
	put(t, o.Tree, `{"version":2}`, dayFile(newer.ID, ".json"))
	check(t, os.Remove(recordPath(o.Tree, folder.ID)))
	check(t, os.Mkdir(recordPath(o.Tree, folder.ID), 0o750))
	findings, err := o.Sweep(nil)
	if len(findings) != 1 || findings[0].Action != SweepReportOnly || findings[0].File != dayFile(folder.ID,
		".json") || err == nil {
		t.Fatalf("%+v, %v", findings, err)
	}
	for _, want := range []string{newer.ID.String(), ErrNewerVersion.Error()} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	wantNames(t, o.JobsDir(), MarkerName(newer.ID, Queued), MarkerName(folder.ID, Queued))
}

func TestSweepOfUnknownEndings(t *testing.T) {
	t.Parallel()
	o := own(t)
	live, gone := submit(t, o.Tree).ID, foreignID(t, deadPID(t))
	ours := live.String() + ".running.bak"
	age(t, put(t, o.Tree, "", jobsDir, ours), time.Hour)
	old := gone.String() + ".run"
	age(t, put(t, o.Tree, "", jobsDir, old), 6*time.Second)
	young := gone.String() + ".paused~"
	put(t, o.Tree, "", jobsDir, young)
	stranger := "README"
	age(t, put(t, o.Tree, "", jobsDir, stranger), 100*time.Hour)
	wantSwept(t, o, "move_to_corrupt jobs/"+old)
	wantNames(t, o.JobsDir(), ours, young, stranger, MarkerName(live, Queued))
}

// TestSweepOfUnknownEndingsBesideAMarker: a file with an unknown suffix beside a marker is removed
// once it is old enough, unless a foreign program keeps it.
func TestSweepOfUnknownEndingsBesideAMarker(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	o := ownTree(t, openTree(t, t.TempDir(), Options{
		Durability: Process, Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
	}))
	id, foreign := submit(t, o.Tree).ID, foreignID(t, os.Getppid())
	put(t, o.Tree, "", jobsDir, MarkerName(foreign, Running))
	endings := []string{".failed", ".completed", ".bogus_requested", ".running.bak", ".queued~", ".queued12345"}
	var moved []string
	for _, ending := range endings {
		put(t, o.Tree, "", jobsDir, id.String()+ending)
		put(t, o.Tree, "", jobsDir, foreign.String()+ending)
		moved = append(moved, "move_to_corrupt jobs/"+id.String()+ending)
	}
	managed := func(of ID) bool { return of == id }
	if got := swept(t, o, managed); len(got) != 0 {
		t.Errorf("what an editor or a program is about to rename: swept %q", got)
	}
	for _, ending := range endings {
		age(t, filepath.Join(o.JobsDir(), id.String()+ending), time.Hour)
	}
	if got := swept(t, o, managed); len(got) != 0 {
		t.Errorf("renamed to this name just now: swept %q", got)
	}
	ahead.Store(int64(2 * SettleAge))
	slices.Sort(moved)
	if got := swept(t, o, managed); !slices.Equal(got, moved) {
		t.Errorf("swept %q", got)
	}
	if sight, err := o.ObserveAll(id); err != nil || !slices.Equal(sight.States, []State{Queued}) {
		t.Errorf("the operation is %+v, %v", sight, err)
	}
	if got := names(t, filepath.Join(o.Dir(), corruptDir)); len(got) != 2*len(endings) {
		t.Errorf("corrupt/ holds %q", got)
	}
}

func TestSweepOfTemporaryFiles(t *testing.T) {
	t.Parallel()
	o := own(t)
	target := put(t, o.Tree, "precious", "target")
	age(t, put(t, o.Tree, "", tmpDir, "old"), 25*time.Hour)
	age(t, put(t, o.Tree, "", tmpDir, "young"), 23*time.Hour)
	check(t, os.Mkdir(filepath.Join(filepath.Join(o.Dir(), tmpDir), "folder"), 0o750))
	check(t, os.Symlink(target, filepath.Join(filepath.Join(o.Dir(), tmpDir), "folder", "link")))
	age(t, filepath.Join(filepath.Join(o.Dir(), tmpDir), "folder"), 25*time.Hour)
	wantSwept(t, o, "remove tmp/old", "remove tmp/folder")
	wantNames(t, filepath.Join(o.Dir(), tmpDir), "young")
	if got, err := os.ReadFile(target); err != nil || string(got) != "precious" {
		t.Errorf("the target of a link holds %q, %v", got, err)
	}
}

// TestQuarantineDeletesNothing: a second file of the same name at the same instant does not replace
// the first one in corrupt/.
func TestQuarantineDeletesNothing(t *testing.T) {
	t.Parallel()
	o := ownTree(t, openTree(t, t.TempDir(), Options{Durability: Process, Now: frozen}))
	for _, content := range []string{"first", "second", "third"} {
		put(t, o.Tree, content, jobsDir, "file")
		check(t, o.Quarantine("file", "a reason for the "+content))
	}
	check(t, o.Quarantine("file", "gone already"))
	const base = "2025-11-26T13-07-00.123456_file"
	wantNames(t, filepath.Join(o.Dir(), corruptDir), base, base+".reason", base+".2", base+".2.reason",
		base+".3", base+".3.reason")
	for name, want := range map[string]string{
		base: "first", base + ".2": "second",
		base + ".2.reason": "2025-11-26T13:07:00.123456+01:00\n\"jobs/file\": a reason for the second\n",
	} {
		if got, err := os.ReadFile(filepath.Join(o.Dir(), corruptDir, name)); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v", name, got, err)
		}
	}
}

// TestSweepBesideWork: sweeps during the work of a daemon find nothing of live operations.
func TestSweepBesideWork(t *testing.T) {
	t.Parallel()
	const operations = 500
	o := own(t)
	o.options.Now = func() time.Time { return time.Now().Add(time.Minute) } // every request is old
	var working sync.WaitGroup
	for range 2 {
		working.Go(func() {
			for range operations / 2 {
				if err := live(t, o); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { working.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		findings, err := o.Sweep(nil)
		check(t, err)
		for _, f := range findings {
			// A sweep may remove the marker of an operation that has just ended, and a request that
			// came too late.
			name, _ := ParseName(filepath.Base(f.File))
			if rec, err := o.ReadRecord(name.ID); err != nil || !rec.Status.Terminal() {
				t.Errorf("a sweep beside work: %+v (%v)", f, err)
			}
		}
	}
	_, err := o.Sweep(nil)
	check(t, err)
	wantNames(t, o.JobsDir())
	wantNames(t, filepath.Join(o.Dir(), corruptDir))
	wantLive(t, o)
}

// live is the life of one operation under a daemon: submitted, paused, resumed, cancelled, ended.
func live(t *testing.T, o *Owner) error {
	t.Helper()
	rec, err := o.Submit(t.Context(), Submission{Group: "g", Job: "j"})
	if err != nil {
		return err
	}
	state := Queued
	for _, cause := range []Cause{CauseStart, CausePause, CauseResume} {
		next, err := Next(state, cause)
		if err != nil {
			return err
		}
		if cause == CausePause {
			if err := o.Request(t.Context(), rec.ID, Pause, nil); err != nil {
				return err
			}
			taken, ok, err := o.Requests.Take(rec.ID, Pause)
			if !ok {
				t.Errorf("the request of a live operation went: %v", err)
			} else if err := o.Requests.Drop(taken); err != nil {
				return err
			}
		}
		if err := o.Move(rec.ID, state, next); err != nil {
			return err
		}
		state = next
	}
	if err := o.Request(t.Context(), rec.ID, Cancel, nil); err != nil {
		return err
	}
	if err := rec.Apply(state, CauseDone, testTime); err != nil {
		return err
	}
	return finish(o, rec, state)
}
