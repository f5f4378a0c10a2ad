package keeper

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// releasePages releases the resident pages of the program itself (madvise(2), MADV_DONTNEED). Most
// of them were needed only at its start, which initialises everything that a daemon has; a keeper
// lives long and uses little of it. Pages that are needed again come back from the page cache. Only
// mappings that cannot have been written to are released.
func releasePages() error {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer maps.Close()
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		// 00400000-00a1b000 r-xp 00000000 08:01 131 /usr/bin/jobdir
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || strings.Contains(fields[1], "w") || strings.Join(fields[5:], " ") != program {
			continue
		}
		var from, to uintptr
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &from, &to); err != nil {
			return fmt.Errorf("read /proc/self/maps: %q: %w", fields[0], err)
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("give back %s: %w", fields[0], errno)
		}
	}
	return nil
}
