package keeper

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// After releasePages the program runs on as before, with fewer of its pages in memory.
func TestReleasePages(t *testing.T) {
	before := fileMemory(t)
	if err := releasePages(); err != nil {
		t.Fatal(err)
	}
	if after := fileMemory(t); after >= before {
		t.Errorf("%d KiB of files in memory, %d before", after, before)
	}
	s := newSite(t)
	if e := exitOf(t, run(t, s.open(t), s.job(t, 1, "-exit", "3"))); e.Code != 3 {
		t.Errorf("exit is %+v", e)
	}
}

// fileMemory returns how much resident memory of this process is backed by files, in KiB.
func fileMemory(t *testing.T) (size int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "RssFile: %d kB", &size); err == nil {
			return size
		}
	}
	t.Fatal("no RssFile in /proc/self/status")
	return 0
}
