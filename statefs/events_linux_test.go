package statefs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// recorder reads the events of one folder directly from the kernel. See inotify(7).
type recorder struct{ fd int }

func record(t *testing.T, dir string) *recorder {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	check(t, err)
	t.Cleanup(func() { check(t, unix.Close(fd)) })
	_, err = unix.InotifyAddWatch(fd, dir, unix.IN_ALL_EVENTS&^(unix.IN_OPEN|unix.IN_ACCESS|unix.IN_CLOSE_NOWRITE))
	check(t, err)
	return &recorder{fd}
}

// taken returns the events since the last call; the kernel queues an event before the system call
// that caused it returns.
func (r *recorder) taken(t *testing.T) []string {
	t.Helper()
	kinds := map[uint32]string{
		unix.IN_CREATE: "create", unix.IN_DELETE: "delete", unix.IN_MOVED_FROM: "from", unix.IN_MOVED_TO: "to",
		unix.IN_MODIFY: "modify", unix.IN_ATTRIB: "attrib", unix.IN_CLOSE_WRITE: "close",
	}
	var events []string
	for buf := make([]byte, 1<<16); ; {
		n, err := unix.Read(r.fd, buf)
		if errors.Is(err, unix.EAGAIN) {
			return events
		}
		check(t, err)
		for rest := buf[:n]; len(rest) > 0; {
			mask := binary.NativeEndian.Uint32(rest[4:])
			length := binary.NativeEndian.Uint32(rest[12:])
			head := int(unsafe.Sizeof(unix.InotifyEvent{}))
			name := bytes.TrimRight(rest[head:head+int(length)], "\x00")
			events = append(events, fmt.Sprintf("%s %s", kinds[mask], name))
			rest = rest[head+int(length):]
		}
	}
}

func (r *recorder) want(t *testing.T, what string, events ...string) {
	t.Helper()
	if got := r.taken(t); !slices.Equal(got, events) {
		t.Errorf("%s makes the events %q, want %q", what, got, events)
	}
}

// TestEventsInTheWatchedFolder: each write to the watched folder causes one event, so that a daemon
// reconciles once.
func TestEventsInTheWatchedFolder(t *testing.T) {
	t.Parallel()
	// A process that another test starts inherits open files until its exec, which closes them and
	// causes another event.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	for _, durability := range []Durability{Power, Process} {
		o := ownTree(t, openTree(t, t.TempDir(), Options{Durability: durability}))
		events := record(t, o.JobsDir())
		made := "create "
		if fd, err := syscall.Open(o.Dir()+"/"+tmpDir, unix.O_TMPFILE|unix.O_WRONLY, 0o600); err != nil {
			made = "to " // a file system without unnamed files
		} else {
			check(t, syscall.Close(fd))
		}

		rec := submit(t, o.Tree)
		events.want(t, "submit", made+MarkerName(rec.ID, Queued))

		check(t, o.files.Replace(path.Join(jobsDir, "file"), []byte("x"), false))
		events.want(t, "replace of a free name", "to file")
		check(t, o.files.Replace(path.Join(jobsDir, "file"), []byte("y"), false))
		events.want(t, "replace of a file", "to file")
		check(t, o.RemoveName("file"))
		events.want(t, "remove", "delete file")
		check(t, o.RemoveName("file"))
		events.want(t, "remove of nothing")

		check(t, o.Request(t.Context(), rec.ID, Pause, nil))
		events.want(t, "request", "to "+RequestName(rec.ID, Pause))
		check(t, o.Request(t.Context(), rec.ID, Resume, []byte(`{"a":1}`)))
		events.want(t, "the opposite request", "to "+RequestName(rec.ID, Resume), "delete "+RequestName(rec.ID, Pause))
		taken, ok, err := o.Requests.Take(rec.ID, Resume)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		events.want(t, "take", "from "+RequestName(rec.ID, Resume))
		check(t, o.Requests.Drop(taken))
		events.want(t, "drop")

		check(t, o.Move(rec.ID, Queued, Running))
		events.want(t, "move", "from "+MarkerName(rec.ID, Queued), "to "+MarkerName(rec.ID, Running))

		check(t, o.WriteRecord(rec))
		check(t, o.Output.WriteProgress(rec.ID, Progress{}))
		log, err := o.Output.AppendLog(rec.ID, "")
		check(t, err)
		_, err = log.WriteString("line\n")
		check(t, err)
		check(t, log.Close())
		_, err = o.ObserveAll(rec.ID)
		check(t, err)
		_, err = o.List()
		check(t, err)
		_, err = o.Stamp(MarkerName(rec.ID, Running))
		check(t, err)
		check(t, o.Sync(rec.ID))
		events.want(t, "record, progress, log, looks and syncs")

		check(t, rec.Apply(Running, CauseDone, testTime))
		check(t, finish(o, rec, Running))
		events.want(t, "finish", "delete "+MarkerName(rec.ID, Running))
	}
}
