package statefs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"
)

// clockTicks is USER_HZ, which Linux fixes at 100 for every architecture that Go runs on; see proc(5).
const clockTicks = 100

// processStart returns when a process of our PID namespace started, and false if there is none. A
// zombie counts as gone: it will never answer a request. See proc(5), /proc/PID/stat fields 3 and
// 22, and btime in /proc/stat.
func processStart(pid int) (at time.Time, alive bool, err error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, false, nil
	}
	if err != nil {
		return time.Time{}, false, fmt.Errorf("look at process %d: %w", pid, err)
	}
	// The second field is the program's name in parentheses and may hold any bytes, so count from
	// the last parenthesis.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return time.Time{}, false, fmt.Errorf("look at process %d: /proc says %q", pid, stat)
	}
	if state := fields[0][0]; state == 'Z' || state == 'X' {
		return time.Time{}, false, nil
	}
	ticks, err := strconv.ParseInt(string(fields[19]), 10, 64)
	if err != nil {
		return time.Time{}, false, fmt.Errorf("look at process %d: %w", pid, err)
	}
	boot, err := bootTime()
	if err != nil {
		return time.Time{}, false, err
	}
	return boot.Add(time.Duration(ticks) * (time.Second / clockTicks)), true, nil
}

func bootTime() (time.Time, error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Time{}, fmt.Errorf("find the boot time: %w", err)
	}
	for line := range bytes.Lines(data) {
		if text, ok := bytes.CutPrefix(line, []byte("btime ")); ok {
			seconds, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
			if err != nil {
				return time.Time{}, fmt.Errorf("find the boot time: %w", err)
			}
			return time.Unix(seconds, 0), nil
		}
	}
	return time.Time{}, errors.New("find the boot time: /proc/stat has no btime")
}

// pidNamespace returns the PID namespace of this process in the form of readlink(1); see
// pid_namespaces(7).
func pidNamespace() string {
	name, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return name
}
