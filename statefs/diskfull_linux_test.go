package statefs

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a file system of 1 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may mount the file system of 1 MiB that this test fills")
	}
	dir := t.TempDir()
	check(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=0750"))
	t.Cleanup(func() { unmount(t, dir) })
	return dir
}

// unmount fails the test if a file of the file system is still open. A command that another test starts holds all
// descriptors of this process until its exec, so a busy file system is tried again.
func unmount(t *testing.T, dir string) {
	t.Helper()
	tick, late := time.NewTicker(5*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for {
		err := unix.Unmount(dir, 0)
		if !errors.Is(err, unix.EBUSY) {
			check(t, err)
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("unmount %s: %v", dir, err)
		}
	}
}

func TestFullDiskRefusesTheSubmitOnly(t *testing.T) {
	t.Parallel()
	for _, durability := range []Durability{Power, Process} {
		t.Run(string(durability), func(t *testing.T) {
			t.Parallel()
			dir := smallDisk(t)
			tree := openTree(t, dir, Options{Durability: durability})
			o := ownTree(t, tree)
			running := submit(t, tree)
			check(t, o.Move(running.ID, Queued, Running))

			ballast := filepath.Join(dir, "ballast")
			f, err := os.Create(ballast)
			check(t, err)
			for err == nil {
				_, err = f.Write(make([]byte, 4096))
			}
			check(t, f.Close())
			if !errors.Is(err, unix.ENOSPC) {
				t.Fatalf("the disk did not fill: %v", err)
			}

			for range 3 {
				if _, err := tree.Submit(t.Context(), Submission{Group: "g", Job: "j"}); !errors.Is(err, unix.ENOSPC) {
					t.Errorf("submit on a full disk: %v", err)
				}
			}
			// The same failure has the same text, so that it is logged only once.
			texts := make(map[string]bool)
			for range 3 {
				texts[o.WriteRecord(running).Error()] = true
			}
			if len(texts) != 1 {
				t.Errorf("one reason, several texts: %v", texts)
			}
			// Requests still work: without arguments they need no disk space.
			wantRequests(t, o, running.ID)
			if err := tree.Request(t.Context(), running.ID, Skip,
				json.RawMessage(`{"step":"a"}`)); !errors.Is(err, unix.ENOSPC) {
				t.Errorf("request with arguments on a full disk: %v", err)
			}
			// Transitions without data need no disk space.
			check(t, o.Move(running.ID, Running, Paused))
			check(t, o.Sync(running.ID))
			check(t, o.Move(running.ID, Paused, Running))
			check(t, o.Sync(running.ID))
			wantNames(t, tree.JobsDir(), MarkerName(running.ID, Running))
			wantNames(t, filepath.Join(tree.Dir(), tmpDir))
			if rec, err := tree.ReadRecord(running.ID); err != nil || rec.Status != Queued {
				t.Errorf("the record of the running one: %v", err)
			}
			wantNames(t, filepath.Dir(recordPath(tree, running.ID)), running.ID.String()+".json")

			check(t, os.Truncate(ballast, 0)) // a process that another test starts may hold the file for a moment
			check(t, os.Remove(ballast))
			next := submit(t, tree)
			check(t, tree.Request(t.Context(), running.ID, Pause, nil))
			wantNames(t, tree.JobsDir(), MarkerName(running.ID, Running), RequestName(running.ID, Pause),
				MarkerName(next.ID, Queued))
			check(t, running.Apply(Running, CauseDone, testTime))
			check(t, finish(o, running, Running))
		})
	}
}

// wantRequests makes, takes and drops each request twice, as a person who repeats it does.
func wantRequests(t *testing.T, o *Owner, id ID) {
	t.Helper()
	began := time.Now().Add(-clockSlack)
	for _, ask := range []Action{Pause, Resume, Cancel} {
		for range 2 {
			check(t, o.Request(t.Context(), id, ask, nil))
		}
		first, ok, err := o.Requests.Take(id, ask)
		if err != nil || !ok || first.At.At.Before(began) {
			t.Fatalf("take %s: %+v, %v, %v", ask, first, ok, err)
		}
		// It is still in taken/ when the same request is made again.
		check(t, o.Request(t.Context(), id, ask, nil))
		again, ok, err := o.Requests.Take(id, ask)
		if err != nil || !ok {
			t.Fatalf("take %s again: %v, %v", ask, ok, err)
		}
		if _, err := o.jobs.Lstat(RequestName(id, ask)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s was taken and is still there: %v", ask, err)
		}
		check(t, o.Requests.Drop(again))
		if n, err := o.Requests.Restore(); n != 0 || err != nil {
			t.Errorf("%d requests are left, %v", n, err)
		}
	}
	wantNames(t, filepath.Join(o.Dir(), tmpDir))
}

// fewInodes mounts an ext4 with a hundred inodes. A tmpfs is not suitable, because it counts links
// as inodes.
func fewInodes(t *testing.T) string {
	t.Helper()
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	check(t, os.WriteFile(image, nil, 0o600))
	check(t, os.Truncate(image, 8<<20))
	for _, command := range [][]string{
		{"mkfs.ext4", "-q", "-F", "-N", "100", image},
		{"mount", "-o", "loop", image, dir},
	} {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Skipf("this test mounts an ext4, which %s does not let it: %v %s", command[0], err, out)
		}
	}
	t.Cleanup(func() { unmount(t, dir) })
	return dir
}

// TestRequestsWithoutInodes: without a free inode no file can be created, but requests still work.
func TestRequestsWithoutInodes(t *testing.T) {
	t.Parallel()
	dir := fewInodes(t)
	o := ownTree(t, openTree(t, filepath.Join(dir, "storage"), Options{}))
	running := submit(t, o.Tree)
	check(t, o.Move(running.ID, Queued, Running))
	ballast := filepath.Join(dir, "ballast")
	check(t, os.Mkdir(ballast, 0o700))
	var err error
	for i := 0; err == nil; i++ {
		err = os.WriteFile(filepath.Join(ballast, strconv.Itoa(i)), nil, 0o600)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	before, err := o.numbers.storageInfo()
	check(t, err)
	wantRequests(t, o, running.ID)
	if after, err := o.numbers.storageInfo(); err != nil || after != before {
		t.Errorf("storage.json was %+v and is %+v, %v", before, after, err)
	}
	check(t, o.Request(t.Context(), running.ID, Pause, nil))
	check(t, os.RemoveAll(ballast))
	check(t, o.Request(t.Context(), running.ID, Pause, nil))
	if after, err := o.numbers.storageInfo(); err != nil || after != before {
		t.Errorf("a request wrote into storage.json: %+v, %v", after, err)
	}
	taken, ok, err := o.Requests.Take(running.ID, Pause)
	if err != nil || !ok {
		t.Errorf("%v, %v", ok, err)
	}
	check(t, o.Requests.Drop(taken))
	submit(t, o.Tree)
}

// TestReadOnlyDisk: a storage on a read-only disk reports what to do about it, and can still be
// read.
func TestReadOnlyDisk(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	tree, err := Open(filepath.Join(dir, "storage"), Options{Durability: Process})
	check(t, err)
	rec := submit(t, tree)
	check(t, tree.Close())
	check(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	tree = openTree(t, filepath.Join(dir, "storage"), Options{})
	if _, err := Own(tree); !errors.Is(err, unix.EROFS) ||
		!strings.Contains(err.Error(), "mount the file system for writing") {
		t.Errorf("own: %v", err)
	}
	if _, err := tree.Submit(t.Context(), Submission{Group: "g", Job: "j"}); !errors.Is(err, unix.EROFS) {
		t.Errorf("submit: %v", err)
	}
	if state, err := tree.State(rec.ID); err != nil || state != Queued {
		t.Errorf("%s, %v", state, err)
	}
	if _, err := Open(filepath.Join(dir, "other"), Options{}); !errors.Is(err, unix.EROFS) ||
		!strings.Contains(err.Error(), "mount the file system for writing") {
		t.Errorf("a new one: %v", err)
	}
}
