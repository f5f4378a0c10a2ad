package jobsexample

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/jobdir/jobdir/daemon/work"
)

// blockSize is how much of a file is read between two checkpoints.
const blockSize = 1 << 20

// checksum reads every regular file below a folder and reports its size and SHA-256, several files at a time. Folders
// whose name begins with a dot are left out, and symbolic links are not followed. What cannot be read is a failed
// item.
func checksum(ctx context.Context, op *work.Op) error {
	path := op.Params().Get("path")
	if info, err := os.Stat(path); err == nil && !info.IsDir() { // opening a fifo would wait for its writer
		return fmt.Errorf("%s is not a folder; give the path of a folder that the daemon can read", path)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return fmt.Errorf("%w; give the path of a folder that the daemon can read", err)
	}
	defer root.Close()
	found, err := findFiles(op, root)
	if err != nil {
		return err
	}
	op.Progress(0, int64(len(found)), "reading")
	s := &hasher{op: op, root: root, files: found}
	if err := s.run(ctx, int(integer(op.Params(), "workers"))); err != nil {
		return err
	}
	return op.Result("bytes", s.bytes.Load())
}

// file is one file to read; err says that it, or the folder of this name, could not even be listed.
type file struct {
	name string
	err  error
}

// findFiles lists the files first, so that each line can say how many there are.
func findFiles(op *work.Op, root *os.Root) (found []file, err error) {
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && name == ".":
			return err
		case err != nil:
			found = append(found, file{name, err})
		case entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case entry.IsDir():
			return op.Checkpoint()
		case entry.Type().IsRegular():
			found = append(found, file{name: name})
		}
		return nil
	})
	return found, err
}

// hasher reads a list of files with several workers.
type hasher struct {
	op      *work.Op
	root    *os.Root
	files   []file
	claimed atomic.Int64 // files that a worker has begun
	bytes   atomic.Int64 // bytes read from files that ended well
}

// run returns when every worker has ended. The error is the cause for which they are to end.
func (s *hasher) run(ctx context.Context, workers int) error {
	ended := make(chan error, workers)
	for range workers {
		go func() { ended <- s.work(ctx) }()
	}
	var first error
	for range workers {
		if err := <-ended; err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (s *hasher) work(ctx context.Context) error {
	buffer := make([]byte, blockSize)
	for {
		number := int(s.claimed.Add(1))
		if number > len(s.files) {
			return nil
		}
		f := s.files[number-1]
		if s.op.Finished(f.name) {
			continue // before a restart
		}
		item := s.op.Parallel(number, len(s.files), f.name)
		size, sum, err := int64(0), "", f.err
		if err == nil {
			size, sum, err = s.sum(item, f.name, buffer)
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			item.Fail(err)
		default:
			s.bytes.Add(size)
			item.OK(slog.Int64("size_bytes", size), slog.String("sha256", sum))
		}
	}
}

func (s *hasher) sum(item *work.Item, name string, buffer []byte) (size int64, sum string, err error) {
	if err := item.Checkpoint(); err != nil {
		return 0, "", err
	}
	// It was a regular file when it was listed; a fifo that took its place must not be waited for.
	f, err := s.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return 0, "", errors.Join(fmt.Errorf("%s is no regular file any more", name), err)
	}
	hash := sha256.New()
	size, err = io.CopyBuffer(hash, pausable{f, item}, buffer)
	return size, hex.EncodeToString(hash.Sum(nil)), err
}

// pausable is a checkpoint before each read. It waits through the item, which is how the daemon knows that a pause is
// complete: when every open item waits.
type pausable struct {
	io.Reader

	item *work.Item
}

func (p pausable) Read(into []byte) (int, error) {
	if err := p.item.Checkpoint(); err != nil {
		return 0, err
	}
	return p.Reader.Read(into)
}
