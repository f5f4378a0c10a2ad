package keeper

import (
	"bytes"
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
	envEnd  uint64 // address; 0 while a program is being loaded, and for kernel threads and zombies
}

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
	var errs [6]error
	s.parent, errs[0] = strconv.Atoi(string(fields[4-3]))
	s.group, errs[1] = strconv.Atoi(string(fields[5-3]))
	s.flags, errs[2] = strconv.ParseUint(string(fields[9-3]), 10, 64)
	s.start, errs[3] = strconv.ParseUint(string(fields[22-3]), 10, 64)
	s.envEnd, errs[4] = strconv.ParseUint(string(fields[51-3]), 10, 64)
	s.session, errs[5] = strconv.Atoi(string(fields[6-3]))
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
	return environ, err == nil && len(environ) == 0 && st.envEnd == 0, err
}

func readProc(pid int, name string) ([]byte, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/" + name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil, errGone
	}
	return data, err
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
