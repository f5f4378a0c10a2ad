package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// memory is what a process has in memory, in bytes.
type memory struct {
	resident  int64 // VmRSS of /proc/PID/status
	anonymous int64 // RssAnon of the same: without the pages of its files
	private   int64 // Private_Dirty of /proc/PID/smaps_rollup
	inUse     int64 // heap and stacks after a collection, by its own word; 0 when it cannot be asked
	settled   int64 // VmRSS after that
}

func (m memory) minus(o memory) memory {
	return memory{
		m.resident - o.resident, m.anonymous - o.anonymous, m.private - o.private, m.inUse - o.inUse,
		m.settled - o.settled,
	}
}

// memoryOf reads the memory of a child. If asked is set, it requests the memory in use from a child that
// plays a role.
func memoryOf(c *child, asked bool) (m memory, err error) {
	// First as it is, then after the collection that asking makes.
	m.resident, err = kibibytes(c.pid(), "status", "VmRSS:")
	if err == nil {
		m.anonymous, err = kibibytes(c.pid(), "status", "RssAnon:")
	}
	if err == nil {
		m.private, err = kibibytes(c.pid(), "smaps_rollup", "Private_Dirty:")
	}
	if err != nil || !asked {
		return m, err
	}
	if _, err := c.in.Write([]byte{'?'}); err != nil {
		return m, fmt.Errorf("ask %s for its memory: %w", c.name, err)
	}
	if err = c.answer(&m.inUse); err == nil {
		m.settled, err = kibibytes(c.pid(), "status", "VmRSS:")
	}
	return m, err
}

func kibibytes(pid int, file, field string) (int64, error) {
	path := fmt.Sprintf("/proc/%d/%s", pid, file)
	for line := range lines(path) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == field {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("%s has no line %s", path, field)
}

// effort is what a process has done.
type effort struct {
	ticks    time.Duration // user and system time of /proc/PID/stat, counted in clock ticks of 10 ms
	ran      time.Duration // the same by the scheduler, of /proc/PID/task/*/schedstat
	switches int64         // times that a thread went to wait by itself
}

func (e effort) minus(o effort) effort {
	return effort{e.ticks - o.ticks, e.ran - o.ran, e.switches - o.switches}
}

const clockTick = 10 * time.Millisecond

func effortOf(pid int) (e effort, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return e, fmt.Errorf("read the processor time: %w", err)
	}
	// The name, in parentheses, may hold anything; utime and stime are fields 14 and 15 of proc_pid_stat(5).
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return e, fmt.Errorf("read the processor time: %w", err)
		}
		e.ticks += time.Duration(n) * clockTick
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		return e, err
	}
	for _, task := range tasks {
		for line := range lines(task + "/schedstat") {
			first, _, _ := strings.Cut(line, " ")
			n, _ := strconv.ParseInt(first, 10, 64) // a kernel without it has no file
			e.ran += time.Duration(n)
		}
		for line := range lines(task + "/status") {
			if text, ok := strings.CutPrefix(line, "voluntary_ctxt_switches:"); ok {
				n, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64) // the kernel writes a number
				e.switches += n
			}
		}
	}
	return e, nil
}
