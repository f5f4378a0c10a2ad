package statefs

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestFindRecent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now := time.Date(2026, 3, 1, 0, 10, 0, 0, time.Local)
	tree := openTree(t, dir, Options{Now: func() time.Time { return now }})
	for day, numbers := range map[string][]int{"2026-03-01": {7, 8}, "2026-02-28": {5, 6}, "2026-02-27": {4, 70}} {
		check(t, os.Mkdir(filepath.Join(dir, operationsDir, day), 0o750))
		for _, n := range numbers {
			id := fmt.Sprintf("g-j_%s_00-05-00_p1_r%d", day, n)
			for _, suffix := range []string{".json", ".log"} {
				check(t, os.WriteFile(filepath.Join(dir, operationsDir, day, id+suffix), nil, 0o600))
			}
		}
	}
	for number, want := range map[uint64]string{
		7: "[g-j_2026-03-01_00-05-00_p1_r7]", 5: "[g-j_2026-02-28_00-05-00_p1_r5]", 4: "[]", 70: "[]", 1: "[]",
	} {
		if found, err := tree.FindRecent(number); err != nil || fmt.Sprint(found) != want {
			t.Errorf("%d: %v %v, want %s", number, found, err, want)
		}
	}
	for number, want := range map[uint64]string{
		7:  "[g-j_2026-03-01_00-05-00_p1_r7]",
		70: "[g-j_2026-02-27_00-05-00_p1_r70]", 1: "[]",
	} {
		if found, err := tree.FindByNumber(number); err != nil || fmt.Sprint(found) != want {
			t.Errorf("%d of all: %v %v, want %s", number, found, err, want)
		}
	}
}
