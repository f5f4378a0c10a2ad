package keeper_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/internal/faultfs"
	"github.com/jobdir/jobdir/keeper"
)

// failingSite is a storage on a disk that can be made to fail, with a keeper that gives up after the given times.
func failingSite(t *testing.T, farewell, forlorn string) (dir string, s *keeper.Site, disk *faultfs.Disk, mounted *faultfs.Mounted) {
	t.Helper()
	if err := faultfs.CanMount(); err != nil {
		t.Skip(err)
	}
	dir, disk = t.TempDir(), faultfs.NewDisk(faultfs.Empty())
	mounted, err := faultfs.Mount(dir, disk)
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	t.Cleanup(func() {
		if !closed {
			_ = mounted.Close() // the test may have done so
		}
	})
	return dir, keeper.Impatient(t, dir, farewell, forlorn), disk, mounted
}

// TestStorageIsGone takes the disk from under a keeper, which cannot say how its command ended, and tells it to end.
func TestStorageIsGone(t *testing.T) {
	t.Parallel()
	_, s, _, mounted := failingSite(t, "1ms", "10h")
	end, pid, ended := s.Abandoned(t)
	if err := mounted.Close(); err != nil {
		t.Fatal(err)
	}
	end()
	if err := unix.Kill(pid, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended()
}

// TestStorageFails has a disk that takes no new file any more, and nobody who tells the keeper to end.
func TestStorageFails(t *testing.T) {
	t.Parallel()
	dir, s, disk, _ := failingSite(t, "10h", "1ms")
	end, _, ended := s.Abandoned(t)
	disk.Arm(&faultfs.Fault{Kind: faultfs.Create, At: 1, Err: unix.EIO, Stays: true})
	end()
	ended()
	said, err := os.ReadFile(filepath.Join(dir, keeper.LogName(1)))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"it is tried again", "exit report given up", "code=7", keeper.ErrReportsLost.Error(), "bring the disk of " + dir + " back"} {
		if !strings.Contains(string(said), want) {
			t.Errorf("the keeper did not say %q:\n%s", want, said)
		}
	}
}

// TestStorageIsFull waits for a disk that is only full, however long that takes, unless the keeper has to end.
func TestStorageIsFull(t *testing.T) {
	t.Parallel()
	dir, s, disk, _ := failingSite(t, "10h", "1ms")
	end, _, ended := s.Abandoned(t)
	full := &faultfs.Fault{Kind: faultfs.Create, At: 1, Err: unix.ENOSPC, Stays: true}
	disk.Arm(full)
	end()
	log := filepath.Join(dir, keeper.LogName(1))
	keeper.Eventually(t, "it is tried twice", func() bool {
		said, err := os.ReadFile(log)
		return err == nil && strings.Count(string(said), "it is tried again") > 1
	})
	disk.Arm(nil)
	ended()
	if r, err := keeper.ReadReport(dir, "operations/2025-11-26/test-job_2025-11-26_13-07-00_p1_r1.exit"); err != nil || r.Code != 7 {
		t.Errorf("%+v, %v", r, err)
	}
}
