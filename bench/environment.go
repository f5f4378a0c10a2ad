package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Environment is what a number depends on beside the program.
type Environment struct {
	Processor  string `json:"processor"`
	Cores      int    `json:"cores"`
	Kernel     string `json:"kernel"`
	Go         string `json:"go"`
	FileSystem string `json:"file_system"`
	Durability string `json:"durability"`
}

func (e Environment) String() string {
	return fmt.Sprintf("%d × %s, Linux %s, %s; storage on %s, durability %s", e.Cores, e.Processor, e.Kernel, e.Go,
		e.FileSystem, e.Durability)
}

func describe(dir, durability string) Environment {
	e := Environment{
		Processor: "unknown processor", Cores: runtime.NumCPU(), Go: runtime.Version(),
		FileSystem: fileSystem(dir), Durability: durability,
	}
	for line := range lines("/proc/cpuinfo") {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			e.Processor = strings.Trim(name, " \t:")
			break
		}
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		e.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return e
}

// fileSystem names the type and the device of the file system that holds dir.
func fileSystem(dir string) string {
	name, longest := "unknown", -1
	for line := range lines("/proc/self/mounts") {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		rel, err := filepath.Rel(f[1], dir)
		if err == nil && filepath.IsLocal(rel) && len(f[1]) > longest {
			name, longest = f[2]+" ("+f[0]+")", len(f[1])
		}
	}
	return name
}

// makeTemp makes the folder of the run: in dir, else in the folder for temporary files, unless that is memory.
func makeTemp(dir string) (string, error) {
	if dir == "" {
		dir = os.TempDir()
		if strings.HasPrefix(fileSystem(dir), "tmpfs") {
			dir = "/var/tmp"
		}
	}
	temp, err := os.MkdirTemp(dir, "jobdir-bench-")
	if err != nil {
		return "", fmt.Errorf("make a temporary folder: %w", err)
	}
	return filepath.Abs(temp)
}

func loadAverage() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(data), " ")
	return one
}

// raiseFileLimit allows as many open files as this user may have; child processes inherit it.
func raiseFileLimit() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raise the limit of open files: %w", err)
	}
	return nil
}

// maxFiles is the limit of open files.
func maxFiles() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 1024
	}
	return int(min(limit.Cur, 1<<30))
}

// lines are the lines of a file of /proc; none when it cannot be read.
func lines(path string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		f, err := os.Open(path)
		if err != nil {
			return
		}
		defer f.Close()
		for scan := bufio.NewScanner(f); scan.Scan(); {
			if !yield(scan.Text()) {
				return
			}
		}
	}
}
