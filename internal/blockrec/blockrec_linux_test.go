package blockrec

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func all() bool  { return true }
func none() bool { return false }

func TestReplay(t *testing.T) {
	t.Parallel()
	disk := NewDisk(Blank(8 * Block))
	block := func(c byte) []byte { return bytes.Repeat([]byte{c}, Block) }
	write := func(offset int64, data []byte) {
		disk.do(Op{Kind: Write, Offset: offset, Length: int64(len(data)), data: data})
	}
	write(0, append(block('a'), block('b')...))
	disk.do(Op{Kind: Flush})
	write(Block, block('c'))
	write(512, []byte("small"))
	disk.do(Op{Kind: Zero, Offset: 0, Length: 100})
	r := disk.Replay()
	holds := func(what string, image *Image, offset int64, want ...byte) {
		t.Helper()
		got := make([]byte, len(want))
		if n := image.read(got, offset); n != len(want) || !bytes.Equal(got, want) {
			t.Errorf("%s: %q at %d, want %q", what, got, offset, want)
		}
	}
	r.To(1)
	if r.Pending() != 2 {
		t.Errorf("a write of two blocks is %d pieces", r.Pending())
	}
	holds("nothing was flushed", r.Draw(none), 0, 0)
	first := true
	torn := r.Draw(func() bool { first = !first; return first })
	holds("the first block is missing", torn, Block-1, 0, 'b')
	r.To(2)
	holds("flushed", r.Draw(none), Block-1, 'a', 'b')
	r.To(r.Len())
	holds("of the rest nothing is there", r.Draw(none), Block, 'b')
	everything := r.Draw(all)
	holds("all is there", everything, Block, 'c')
	holds("in the middle of a block", everything, 511, 'a', 's', 'm', 'a', 'l', 'l', 'a')
	holds("a zero that is no block", everything, 99, 0, 'a')
	holds("as the disk holds it", disk.Image(), 511, 'a', 's')
	if n := everything.read(make([]byte, 10), everything.Size()-3); n != 3 {
		t.Errorf("read %d bytes at the end", n)
	}
}

// TestFsyncArrives holds that a sync of a file on each file system is a flush of the disk when it returns, and that a
// state without any of the later writes has the file.
func TestFsyncArrives(t *testing.T) {
	t.Parallel()
	for _, fs := range FileSystems() {
		t.Run(fs.Name, func(t *testing.T) {
			t.Parallel()
			image, err := fs.Format(t.TempDir())
			if errors.Is(err, ErrCannotAttach) {
				t.Skipf("the tools of %s are missing: %v", fs.Name, err)
			}
			must(t, err)
			disk := NewDisk(image)
			synced := 0
			mounted(t, fs, disk, func(dir string) {
				before := disk.Len()
				must(t, syncedFile(filepath.Join(dir, "synced")))
				synced = disk.Len()
				if !strings.Contains(kinds(disk.Ops()[before:synced]), "wf") {
					t.Errorf("a sync has led to %v", disk.Ops()[before:synced])
				}
				must(t, os.WriteFile(filepath.Join(dir, "later"), nil, 0o600))
			})
			replay := disk.Replay()
			replay.To(synced)
			mounted(t, fs, NewDisk(replay.Draw(none)), func(dir string) {
				if got, err := os.ReadFile(filepath.Join(dir, "synced")); string(got) != "content" || err != nil {
					t.Errorf("read %q, %v", got, err)
				}
				if _, err := os.Stat(filepath.Join(dir, "later")); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("what was written later: %v", err)
				}
			})
		})
	}
}

// kinds has a letter for each operation.
func kinds(ops []Op) string {
	var letters []byte
	for _, op := range ops {
		letters = append(letters, op.Kind[0])
	}
	return string(letters)
}

func syncedFile(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = f.WriteString("content")
	return errors.Join(err, f.Sync(), f.Close())
}

// mounted does something on a mounted disk.
func mounted(t *testing.T, fs FileSystem, disk *Disk, do func(dir string)) {
	t.Helper()
	a, err := Attach(t.TempDir(), disk)
	must(t, err)
	defer func() { must(t, a.Close()) }()
	dir := t.TempDir()
	err = fs.Mount(a, dir)
	if errors.Is(err, ErrCannotAttach) {
		t.Skipf("%s cannot be mounted here: %v", fs.Name, err)
	}
	must(t, err)
	defer func() { must(t, fs.Unmount(a, dir)) }()
	do(dir)
}
