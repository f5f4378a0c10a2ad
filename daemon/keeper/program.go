package keeper

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// findProgram is exec.LookPath, except that PATH is that of env and a path with a slash is relative
// to dir.
//
// It returns the path to execute. Errors wrap exec.ErrNotFound, exec.ErrDot, fs.ErrNotExist or
// fs.ErrPermission.
func findProgram(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		full := name
		if !filepath.IsAbs(name) {
			full = filepath.Join(dir, name)
		}
		if err := executable(full); err != nil {
			return "", explainProgram(name, full, err)
		}
		return name, nil
	}
	path, ok := lookupEnv(env, "PATH")
	if !ok {
		return "", fmt.Errorf("start %q: its environment has no PATH, set one or give the full path of the program: %w",
			name, exec.ErrNotFound)
	}
	var refused error
	for _, folder := range filepath.SplitList(path) {
		full := filepath.Join(folder, name)
		err := executable(full)
		if err == nil && !filepath.IsAbs(folder) {
			return "", fmt.Errorf("start %q: found through the relative entry %q of PATH, give its full path: %w", name,
				folder, exec.ErrDot)
		}
		if err == nil {
			return full, nil
		}
		// Go on searching, as a shell does, but report a file that exists and is not executable
		// rather than none.
		if refused == nil && errors.Is(err, fs.ErrPermission) {
			refused = explainProgram(name, full, err)
		}
	}
	if refused != nil {
		return "", refused
	}
	return "", fmt.Errorf("start %q: not in PATH (%s), install it or give its full path: %w", name, path, exec.ErrNotFound)
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return syscall.EISDIR
	}
	// Root passes access(2) when any x bit is set, and so does execve(2).
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS); err != nil {
		return err
	}
	return nil
}

func explainProgram(name, path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("start %q: there is no program %s: %w", name, path, fs.ErrNotExist)
	case errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("start %q: %s is a directory: %w", name, path, fs.ErrPermission)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("start %q: %s is not executable for this user (chmod +x): %w", name, path, fs.ErrPermission)
	default:
		return fmt.Errorf("start %q: %s: %w", name, path, err)
	}
}

// lookupEnv returns the value of the last entry with that name, as os/exec does with duplicates.
func lookupEnv(env []string, name string) (string, bool) {
	for _, entry := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			return v, true
		}
	}
	return "", false
}
