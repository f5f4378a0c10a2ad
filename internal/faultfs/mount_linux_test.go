package faultfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mount mounts a disk until the test ends. The caller skips where that cannot be done.
func mount(t *testing.T, disk *Disk) string {
	t.Helper()
	if err := CanMount(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	m, err := Mount(dir, disk)
	must(t, err)
	t.Cleanup(func() { must(t, m.Close()) })
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestADiskIsAFileSystem(t *testing.T) {
	t.Parallel()
	disk := NewDisk(Empty())
	dir := mount(t, disk)
	in := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.MkdirAll(in("d/e"), 0o750))
	must(t, os.WriteFile(in("d/a"), []byte("hello"), 0o640))
	must(t, os.Link(in("d/a"), in("b")))
	must(t, os.Symlink("d/a", in("s")))
	must(t, os.Rename(in("d/a"), in("d/e/c")))
	f, err := os.OpenFile(in("b"), os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteString(" world")
	must(t, err)
	must(t, f.Close())
	if got, err := os.ReadFile(in("d/e/c")); string(got) != "hello world" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	must(t, os.Truncate(in("b"), 4))
	then := time.Date(2025, 11, 26, 13, 7, 0, 0, time.UTC)
	must(t, os.Chtimes(in("b"), then, then))
	info, err := os.Stat(in("d/e/c"))
	must(t, err)
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || stat.Nlink != 2 {
		t.Errorf("%+v has not two names", stat)
	}
	if info.Size() != 4 || !info.ModTime().Equal(then) || info.Mode() != 0o640 {
		t.Errorf("%+v, %v", info, err)
	}
	if err := unix.Renameat2(unix.AT_FDCWD, in("b"), unix.AT_FDCWD, in("d/e/c"),
		unix.RENAME_NOREPLACE); !errors.Is(err, unix.EEXIST) {
		t.Errorf("rename onto a name that exists: %v", err)
	}
	if err := os.Remove(in("d")); !errors.Is(err, unix.ENOTEMPTY) {
		t.Errorf("remove a folder that is not empty: %v", err)
	}
	must(t, os.Remove(in("s")))
	var names []string
	for _, name := range []string{".", "d", "d/e"} {
		entries, err := os.ReadDir(in(name))
		must(t, err)
		for _, e := range entries {
			names = append(names, filepath.Join(name, e.Name()))
		}
	}
	if want := []string{"b", "d", "d/e", "d/e/c"}; !slices.Equal(names, want) {
		t.Errorf("names %q, want %q", names, want)
	}
	copied := t.TempDir()
	r := disk.Replay()
	for r.Next() {
	}
	for image := range r.Images(Everything) {
		must(t, image.Materialise(copied))
	}
	if got, err := os.ReadFile(filepath.Join(copied, "b")); string(got) != "hell" || err != nil {
		t.Errorf("a copy holds %q, %v", got, err)
	}
}

// The kernel may remember names and attributes, and what changes them shows at once.
func TestNamesAreCounted(t *testing.T) {
	t.Parallel()
	disk := NewDisk(Empty())
	dir := mount(t, disk)
	in := func(name string) string { return filepath.Join(dir, name) }
	want := func(name string, count uint64) {
		t.Helper()
		var stat unix.Stat_t
		must(t, unix.Stat(in(name), &stat))
		if stat.Nlink != count {
			t.Errorf("%s has %d names, want %d", name, stat.Nlink, count)
		}
	}
	must(t, os.WriteFile(in("a"), nil, 0o600))
	must(t, os.WriteFile(in("other"), nil, 0o600))
	want("a", 1)
	must(t, os.Link(in("a"), in("b")))
	must(t, os.Link(in("a"), in("c")))
	want("b", 3)
	must(t, os.Rename(in("other"), in("c")))
	want("a", 2)
	want("c", 1)
	must(t, os.Remove(in("a")))
	want("b", 1)
	for _, name := range []string{"a", "other"} {
		if _, err := os.Lstat(in(name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, os.Link(in("b"), in("a")))
	r := disk.Replay()
	for r.Next() {
	}
	for image := range r.Images(Everything) {
		dir = mount(t, NewDisk(image))
		want("a", 2)
		want("c", 1)
	}
}

func TestACutForgets(t *testing.T) {
	t.Parallel()
	disk := NewDisk(Empty())
	dir := mount(t, disk)
	durable, err := os.Create(filepath.Join(dir, "durable"))
	must(t, err)
	_, err = durable.WriteString("kept")
	must(t, err)
	must(t, durable.Sync())
	folder, err := os.Open(dir)
	must(t, err)
	must(t, folder.Sync())
	_, err = durable.WriteString("lost")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "lost"), nil, 0o600))
	disk.Cut()
	if _, err := durable.WriteString("x"); !errors.Is(err, unix.EIO) {
		t.Errorf("write after the cut: %v", err)
	}
	_ = durable.Close() // it fails or not
	must(t, folder.Close())
	r := disk.Replay()
	for r.Next() {
	}
	for image := range r.Images(Strict) {
		dir := mount(t, NewDisk(image))
		got, err := os.ReadFile(filepath.Join(dir, "durable"))
		if string(got) != "kept" || err != nil {
			t.Errorf("read %q, %v", got, err)
		}
		if names := image.Names(); len(names) != 1 {
			t.Errorf("the disk holds %q", names)
		}
	}
}

func TestTheCutComesAfterSomeOperations(t *testing.T) {
	t.Parallel()
	disk := NewDisk(Empty())
	dir := mount(t, disk)
	name := func(i int) string { return filepath.Join(dir, strconv.Itoa(i)) }
	must(t, os.Mkdir(name(0), 0o700))
	dark := disk.CutAfter(disk.Len() + 3)
	for i := range 3 {
		select {
		case <-dark:
			t.Fatalf("the power is cut after %d", i)
		default:
		}
		must(t, os.Mkdir(name(i+1), 0o700))
	}
	<-dark
	if err := os.Mkdir(name(4), 0o700); !errors.Is(err, unix.EIO) || disk.Len() != 4 {
		t.Errorf("after the cut: %v, %d operations", err, disk.Len())
	}
	<-disk.CutAfter(1) // which was done before
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		kind Kind
		call func(dir string, f *os.File) error
	}{
		{Create, func(dir string, _ *os.File) error { return os.WriteFile(filepath.Join(dir, "n"), nil, 0o600) }},
		{Write, func(_ string, f *os.File) error { _, err := f.WriteString("x"); return err }},
		{Sync, func(_ string, f *os.File) error { return f.Sync() }},
		{Rename, func(dir string, _ *os.File) error { return os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "b")) }},
		{Link, func(dir string, _ *os.File) error { return os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "b")) }},
		{Unlink, func(dir string, _ *os.File) error { return os.Remove(filepath.Join(dir, "a")) }},
		{SyncDir, func(dir string, _ *os.File) error {
			folder, err := os.Open(dir)
			if err != nil {
				return err
			}
			return errors.Join(folder.Sync(), folder.Close())
		}},
	} {
		t.Run(string(tc.kind), func(t *testing.T) {
			t.Parallel()
			disk := NewDisk(Empty())
			dir := mount(t, disk)
			f, err := os.Create(filepath.Join(dir, "a"))
			must(t, err)
			defer f.Close()
			before := disk.Len()
			disk.Arm(&Fault{Kind: tc.kind, At: 1, Err: unix.ENOSPC})
			if err := tc.call(dir, f); !errors.Is(err, unix.ENOSPC) || !disk.Fired() || disk.Len() != before {
				t.Errorf("%v, fired %t", err, disk.Fired())
			}
			must(t, tc.call(dir, f))
		})
	}
}
