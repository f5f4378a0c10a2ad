package keeper

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs"
)

// ticksPerSecond is the unit of times in /proc; it is 100 on every architecture that Go supports
// (sysconf(_SC_CLK_TCK)).
const ticksPerSecond = 100

// kernelThread is PF_KTHREAD in the flags of a process (linux/sched.h).
const kernelThread = 0x00200000

// errGone means that a process ended while it was examined.
var errGone = errors.New("the process is gone")

// now returns the time since boot in ticks, rounded down: a process forked later does not have an
// earlier start time.
func now() (uint64, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0, err
	}
	return uint64(t.Sec)*ticksPerSecond + uint64(t.Nsec)/(1e9/ticksPerSecond), nil
}

// stat holds the fields used of /proc/PID/stat (proc_pid_stat(5)).
type stat struct {
	state   byte
	parent  int
	group   int
	session int
	flags   uint64
	start   uint64 // ticks since boot
	image   image
}

// image identifies the program that a process executes, by the addresses of its stack and of the
// environment that it was started with. The kernel chooses them anew at each execve(2). They are 0
// while a program is being loaded, for kernel threads and zombies, and for a process that this one
// may not examine.
type image struct{ stack, envStart, envEnd uint64 }

func (i image) known() bool { return i.envEnd > 0 }

func (s stat) kernel() bool { return s.flags&kernelThread != 0 }
func (s stat) zombie() bool { return s.state == 'Z' || s.state == 'X' }

// stopped reports whether a signal or a debugger has stopped the process.
func (s stat) stopped() bool { return s.state == 'T' || s.state == 't' }

func readStat(pid int) (stat, error) {
	data, err := readProc(pid, "stat")
	if err != nil {
		return stat{}, err
	}
	s, err := parseStat(data)
	if err != nil {
		return stat{}, fmt.Errorf("read /proc/%d/stat: %w", pid, err)
	}
	return s, nil
}

func parseStat(data []byte) (stat, error) {
	// The program name may contain anything, including parentheses and spaces, but it ends at the
	// last parenthesis.
	i := bytes.LastIndexByte(data, ')')
	if i < 0 {
		return stat{}, errors.New("no program name in it")
	}
	// fields[0] is field 3 of the manual page.
	fields := bytes.Fields(data[i+1:])
	if len(fields) < 49 || len(fields[0]) != 1 {
		return stat{}, fmt.Errorf("%d fields and at least 51 are expected", len(fields)+2)
	}
	s := stat{state: fields[0][0]}
	var errs [8]error
	s.parent, errs[0] = strconv.Atoi(string(fields[4-3]))
	s.group, errs[1] = strconv.Atoi(string(fields[5-3]))
	s.flags, errs[2] = strconv.ParseUint(string(fields[9-3]), 10, 64)
	s.start, errs[3] = strconv.ParseUint(string(fields[22-3]), 10, 64)
	s.session, errs[4] = strconv.Atoi(string(fields[6-3]))
	s.image.stack, errs[5] = strconv.ParseUint(string(fields[28-3]), 10, 64)
	s.image.envStart, errs[6] = strconv.ParseUint(string(fields[50-3]), 10, 64)
	s.image.envEnd, errs[7] = strconv.ParseUint(string(fields[51-3]), 10, 64)
	return s, errors.Join(errs[:]...)
}

// readEnviron reads the environment a process was started with: NAME=value entries, each ended by
// NUL. It is empty for a process that is gone or of another user. loading means that the process is
// just being loaded and has no environment yet.
func readEnviron(pid int, st stat) (environ []byte, loading bool, err error) {
	environ, err = readProc(pid, "environ")
	if errors.Is(err, errGone) || errors.Is(err, fs.ErrPermission) {
		return nil, false, nil
	}
	return environ, err == nil && len(environ) == 0 && !st.image.known(), err
}

// readProc reads a whole file of a process. It makes the system calls itself: a search reads thousands
// of these files, and an os.File costs seven more calls, most of them for a poller that they do not
// support. The kernel fills the buffer unless the file ends.
func readProc(pid int, name string) ([]byte, error) {
	path := "/proc/" + strconv.Itoa(pid) + "/" + name
	fd, err := openDescriptor(path, 0)
	if err != nil {
		return nil, procError("open", path, err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	data := make([]byte, 0, 2<<10)
	for {
		n, err := unix.Read(fd, data[len(data):cap(data)])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, procError("read", path, err)
		}
		if data = data[:len(data)+n]; len(data) < cap(data) {
			return data, nil
		}
		data = slices.Grow(data, len(data))
	}
}

// openDescriptor opens a file for reading that needs no poller.
func openDescriptor(path string, flags int) (fd int, err error) {
	for {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func procError(op, path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return errGone
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// hasMarks reports whether each of marks is exactly an entry of environ. It is false for no marks.
func hasMarks(environ []byte, marks []string) bool {
	lacks := func(mark string) bool {
		return !hasEntry(environ, func(entry []byte) bool { return string(entry) == mark })
	}
	return len(marks) > 0 && !slices.ContainsFunc(marks, lacks)
}

// namesOperation reports whether environ has an entry JOBDIR_ID that is the ID of an operation.
func namesOperation(environ []byte) bool {
	return hasEntry(environ, func(entry []byte) bool {
		text, ok := bytes.CutPrefix(entry, []byte("JOBDIR_ID="))
		_, err := statefs.ParseID(string(text))
		return ok && err == nil
	})
}

func hasEntry(environ []byte, match func(entry []byte) bool) bool {
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if match(entry) {
			return true
		}
	}
	return false
}

// numbersIn lists the names in dir that are numbers: processes in /proc, descriptors in /proc/self/fd.
func numbersIn(dir string) ([]int, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	numbers := make([]int, 0, len(names))
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}

// processTable lists the processes of this machine, and remembers when each of them started, so that
// a further pass reads only the processes that are new. The zero value is an empty table.
type processTable struct {
	rows   []processRow // of the last listing, in its order: by PID
	listed []processRow // the rows before them; its memory is used again
}

// processRow is an entry of /proc. A process that reuses a PID gets another inode there, so a row
// with an equal PID and inode is the same process.
type processRow struct {
	pid   int
	inode uint64
	start uint64 // stat.start; 0 while it was not read

	// What the mark scanner knows: the entries of the environment with the names of marks, when the
	// process executed this program. The zero image: nothing.
	image image
	marks []string
}

// olderThan reports whether it is known that the process started before since.
func (r *processRow) olderThan(since uint64) bool { return r.start > 0 && r.start < since }

// list reads the list of processes.
func (t *processTable) list() error {
	fd, err := openDescriptor("/proc", unix.O_DIRECTORY)
	if err != nil {
		return procError("open", "/proc", err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	known := t.rows
	t.rows, t.listed = t.listed[:0], known
	var buffer [8 << 10]byte
	for {
		n, err := unix.Getdents(fd, buffer[:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return procError("list", "/proc", err)
		case n == 0:
			return nil
		default:
			known = t.add(buffer[:n], known)
		}
	}
}

// add adds the processes of a piece of the listing (getdents64(2)). known are the rows of the last
// listing that can still follow; add returns the rows that can follow after the piece.
func (t *processTable) add(piece []byte, known []processRow) []processRow {
	const length, name = 16, 19 // where the length and the name of an entry begin; the inode begins at 0
	for len(piece) > name {
		size := min(max(int(binary.NativeEndian.Uint16(piece[length:])), name), len(piece))
		text, _, _ := bytes.Cut(piece[name:size], []byte{0})
		row := processRow{inode: binary.NativeEndian.Uint64(piece)}
		piece = piece[size:]
		var err error
		if row.pid, err = strconv.Atoi(string(text)); err != nil {
			continue
		}
		for len(known) > 0 && known[0].pid < row.pid {
			known = known[1:]
		}
		// Inodes 0 and 1 mean an unknown inode.
		if len(known) > 0 && known[0].pid == row.pid && known[0].inode == row.inode && row.inode > 1 {
			row = known[0]
		}
		t.rows = append(t.rows, row)
	}
	return known
}

// ownAncestors returns this process, its ancestors and process 1, which are never ended.
func ownAncestors() (map[int]bool, error) {
	line := map[int]bool{1: true}
	for pid := os.Getpid(); pid > 1 && !line[pid]; {
		line[pid] = true
		s, err := readStat(pid)
		if errors.Is(err, errGone) {
			break // an ancestor died just now; its parent is no longer above us
		}
		if err != nil {
			return nil, err
		}
		pid = s.parent
	}
	return line, nil
}
