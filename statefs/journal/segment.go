package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jobdir/jobdir/statefs/files"
)

// headerSize is the size of the header of a segment. Frames follow it.
const headerSize = 4096

// Origin says where and when a segment was started. A value must not contain white space.
type Origin struct {
	// Storage is the mark of the storage.
	Storage string
	// Place is the folder of the storage: device and inode. A copy has another one.
	Place string
	// Boot and Mount are of the machine and of its mount of the storage. After a power cut they are different.
	Boot, Mount string
}

// SegmentHeader is the header of a segment.
type SegmentHeader struct {
	Number uint64
	Origin
	// Started is when the first frame was about to be written.
	Started time.Time
}

const headerFormat = "jobdir journal 1 segment %d storage %s place %s boot %s mount %s started %s\n"

func (h SegmentHeader) encode() []byte {
	block := make([]byte, headerSize)
	_ = fmt.Appendf(block[:0], headerFormat, h.Number, orDash(h.Storage), orDash(h.Place), orDash(h.Boot), orDash(h.Mount),
		h.Started.UTC().Format(time.RFC3339Nano))
	return block
}

// orDash makes an empty value visible, and one word of each value.
func orDash(value string) string {
	if value == "" {
		return "-"
	}
	return strings.Join(strings.Fields(value), "_")
}

// parseHeader returns the header of a segment. It returns false for a segment that was never started.
func parseHeader(block []byte) (h SegmentHeader, ok bool) {
	line, _, found := bytes.Cut(block, newline)
	if !found {
		return h, false
	}
	var started string
	_, err := fmt.Sscanf(string(line)+"\n", headerFormat, &h.Number, &h.Storage, &h.Place, &h.Boot, &h.Mount, &started)
	if err == nil {
		h.Started, err = time.Parse(time.RFC3339Nano, started)
	}
	return h, err == nil
}

const suffix = ".journal"

func segmentName(number uint64) string { return fmt.Sprintf("%012d%s", number, suffix) }

// parseName returns the number in the name of a segment, and false for any other file.
func parseName(name string) (number uint64, ok bool) {
	_, err := fmt.Sscanf(name, "%d"+suffix, &number)
	return number, err == nil && name == segmentName(number)
}

// newName is the name of a segment that is not full of zeros yet.
const newName = "new" + suffix

// create makes a segment of zeros. The zeros are written and not only allocated: a write into an allocated block
// changes the metadata of the file, and each sync would write them too.
func create(root *os.Root, number uint64, size int64, durable bool) (err error) {
	f, err := root.OpenFile(newName, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|files.Nonblock, files.Mode)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = root.Remove(newName) // the first error counts; the next create truncates what is left
		}
	}()
	if err := f.Chmod(files.Mode); err != nil { // whatever the umask is
		return err
	}
	zeros := make([]byte, min(size, 1<<20))
	for at := int64(0); at < size && err == nil; at += int64(len(zeros)) {
		_, err = f.Write(zeros[:min(int64(len(zeros)), size-at)])
	}
	if err == nil && durable {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return rename(root, newName, segmentName(number), durable)
}

// rename gives a segment its number, durably.
func rename(root *os.Root, from, to string, durable bool) error {
	return inFolder(root, durable, func(folder *os.File) error { return files.RenameFree(folder, from, to) })
}

// remove removes a segment, durably. A person may have removed it.
func remove(root *os.Root, name string, durable bool) error {
	return inFolder(root, durable, func(*os.File) error {
		if err := root.Remove(name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// inFolder changes the names of the folder, and syncs it if it shall be durable.
func inFolder(root *os.Root, durable bool, change func(folder *os.File) error) error {
	folder, err := root.Open(".")
	if err != nil {
		return err
	}
	if err = change(folder); err == nil && durable {
		if err = folder.Sync(); err != nil {
			err = &files.SyncError{Path: root.Name(), Err: err}
		}
	}
	return errors.Join(err, folder.Close())
}

// path returns the path of a segment for messages.
func path(root *os.Root, number uint64) string {
	return filepath.Join(root.Name(), segmentName(number))
}
