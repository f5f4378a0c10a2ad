package keeper_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/internal/faultfs"
)

// failingSite is a storage on a disk that can be made to fail, with a keeper that has the given
// report timeouts.
func failingSite(t *testing.T, farewell, forlorn string) (dir string, s *keeper.Site, disk *faultfs.Disk,
	mounted *faultfs.Mounted,
) {
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

// TestStorageIsGone unmounts the disk under a keeper, so that it cannot write a report, and
// sends it SIGTERM.
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

// TestStorageFails has a disk that accepts no new file, and a keeper that gets no SIGTERM.
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
	for _, want := range []string{
		"retrying", "exit report given up", "code=7", keeper.ErrReportsLost.Error(),
		"bring the disk of " + dir + " back",
	} {
		if !strings.Contains(string(said), want) {
			t.Errorf("the keeper did not say %q:\n%s", want, said)
		}
	}
}

// TestStorageIsFull has a full disk: the keeper retries until there is space, beyond
// orphanedReportTimeout.
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
		return err == nil && strings.Count(string(said), "retrying") > 1
	})
	disk.Arm(nil)
	ended()
	if r, err := keeper.ReadReport(dir, "operations/2025-11-26/test-job_2025-11-26_13-07-00_p1_r1.exit"); err != nil ||
		r.Code != 7 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestReportMissesTemporaryFolder removes a folder that a report needs and that belongs to no
// operation: the report is written as soon as the folder exists again.
func TestReportMissesTemporaryFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := keeper.Impatient(t, dir, "10h", "10h")
	end, _, ended := s.Abandoned(t)
	tmp, log := filepath.Join(dir, "tmp"), filepath.Join(dir, keeper.LogName(1))
	if err := errors.Join(os.RemoveAll(tmp), os.Symlink("nowhere", tmp)); err != nil {
		t.Fatal(err)
	}
	end()
	keeper.Eventually(t, "the keeper tries again", func() bool {
		said, err := os.ReadFile(log)
		return err == nil && strings.Contains(string(said), "retrying")
	})
	if err := errors.Join(os.Remove(tmp), os.Mkdir(tmp, 0o750)); err != nil {
		t.Fatal(err)
	}
	ended()
	if r, err := keeper.ReadReport(dir, "operations/2025-11-26/test-job_2025-11-26_13-07-00_p1_r1.exit"); err != nil ||
		r.Code != 7 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestReportOfARemovedOperation has a keeper exit without a report when the folder of the report is
// gone.
func TestReportOfARemovedOperation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := keeper.Impatient(t, dir, "10h", "10h")
	end, _, ended := s.Abandoned(t)
	if err := os.RemoveAll(filepath.Join(dir, "operations", "2025-11-26")); err != nil {
		t.Fatal(err)
	}
	end()
	ended()
}
