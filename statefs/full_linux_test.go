package statefs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	t.Cleanup(func() { check(t, unix.Unmount(dir, 0)) })
	return dir
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
				if _, err := tree.Submit(t.Context(), Submission{Group: "g", Job: "j"}); !errors.Is(err, unix.ENOSPC) || !strings.HasPrefix(err.Error(), "submit g/j: ") {
					t.Errorf("submit on a full disk: %v", err)
				}
			}
			if err := tree.Request(t.Context(), running.ID, Pause, nil); !errors.Is(err, unix.ENOSPC) {
				t.Errorf("request on a full disk: %v", err)
			}
			// Transitions without data need no room.
			check(t, o.Move(running.ID, Running, Paused))
			check(t, o.Sync(running.ID))
			check(t, o.Move(running.ID, Paused, Running))
			check(t, o.Sync(running.ID))
			wantNames(t, tree.JobsDir(), MarkerName(running.ID, Running))
			wantNames(t, tree.TempDir())
			if rec, err := tree.ReadRecord(running.ID); err != nil || rec.Status != Queued {
				t.Errorf("the record of the running one: %v", err)
			}
			wantNames(t, filepath.Dir(recordPath(tree, running.ID)), running.ID.String()+".json")

			check(t, os.Remove(ballast))
			next := submit(t, tree)
			check(t, tree.Request(t.Context(), running.ID, Pause, nil))
			wantNames(t, tree.JobsDir(), MarkerName(running.ID, Running), RequestName(running.ID, Pause), MarkerName(next.ID, Queued))
			check(t, running.Apply(Running, CauseDone, testTime))
			check(t, o.Finish(running, Running))
		})
	}
}
