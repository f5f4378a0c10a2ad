package torture

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// TestForeignMarkerOfAnOlderProcess creates markers with the PIDs of live processes. A marker older than its
// process belongs to an earlier process with the same PID, as in containers, where each program has the PID
// 1: the sweep removes it with its requests. A younger marker stays.
func TestForeignMarkerOfAnOlderProcess(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "storage"))
	tree, err := statefs.Open(r.dir, statefs.Options{Durability: statefs.Process})
	must(t, err)
	defer func() { must(t, tree.Close()) }()
	y := &yard{t: t, dir: r.dir, tree: tree}
	before := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC) // this machine booted later
	orphans, kept := make(map[string]string), make(map[string]string)
	for name, pid := range map[string]int{"a process that lives": os.Getpid(), "process 1": 1} {
		written, empty, younger := y.foreign(pid), y.foreign(pid), y.foreign(pid)
		marker := func(id statefs.ID) string { return y.jobs(statefs.MarkerName(id, statefs.Running)) }
		must(t, put(marker(written), before.Format(statefs.StampFormat)+"\n"))
		must(t, put(marker(empty), ""))
		must(t, os.Chtimes(marker(empty), before, before))
		request := y.jobs(statefs.RequestName(empty, statefs.Cancel))
		must(t, put(request, ""))
		must(t, os.Chtimes(request, before, before))
		must(t, put(marker(younger), time.Now().Format(statefs.StampFormat)+"\n"))
		orphans[name+", by the text of the marker"] = marker(written)
		orphans[name+", by the time of an empty marker"] = marker(empty)
		orphans[name+", the request"] = request
		kept[name] = marker(younger)
	}
	d := r.start("--sweep-interval", "1s")
	defer d.kill()
	for name, file := range orphans {
		y.wait("the orphan is removed: "+name, y.gone(file))
	}
	for name, file := range kept {
		if err := y.still(file)(); err != nil {
			t.Errorf("the marker of %s is gone: %v", name, err)
		}
	}
}
