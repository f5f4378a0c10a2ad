package torture

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/internal/faultfs"
	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs"
)

// faultKinds are the operations that are made to fail, with the errors that each can have.
var faultKinds = []struct {
	kind faultfs.Kind
	errs []syscall.Errno
}{
	{faultfs.Create, []syscall.Errno{syscall.ENOSPC, syscall.EIO, syscall.EROFS, syscall.EDQUOT}},
	{faultfs.Write, []syscall.Errno{syscall.ENOSPC, syscall.EIO, syscall.EDQUOT}},
	{faultfs.Sync, []syscall.Errno{syscall.EIO, syscall.ENOSPC}},
	{faultfs.SyncDir, []syscall.Errno{syscall.EIO}},
	{faultfs.Rename, []syscall.Errno{syscall.EIO, syscall.ENOSPC, syscall.EROFS}},
	{faultfs.Link, []syscall.Errno{syscall.EIO, syscall.ENOSPC}},
	{faultfs.Unlink, []syscall.Errno{syscall.EIO, syscall.EROFS}},
}

// TestFaultAtEveryOperation runs a scenario in which one operation is submitted, paused, resumed and
// cancelled and another one ends. It fails the first disk operation of a kind, then the second, and so on
// until the scenario passes without a fault. Each time the daemon continues or ends with a message, and after
// the disk works again no acknowledged operation is lost. Without JOBDIR_TORTURE=full it tests some of the
// numbers, and in the short form one error of each kind.
func TestFaultAtEveryOperation(t *testing.T) {
	t.Parallel()
	if err := faultfs.CanMount(); err != nil {
		t.Skip(err)
	}
	runs, ended := 0, 0
	for i, row := range faultKinds {
		for j, errno := range row.errs[:prooftest.Count(1, len(row.errs), len(row.errs))] {
			for at := 1; ; at++ {
				if !prooftest.Full() && (at+i+j)%prooftest.Count(34, 17, 17) != 0 {
					if at > 40 {
						break
					}
					continue
				}
				fired, died := faultRun(t, &faultfs.Fault{Kind: row.kind, At: at, Err: errno})
				if t.Failed() {
					return
				}
				if !fired {
					break
				}
				runs++
				if died {
					ended++
				}
			}
		}
	}
	figures.add(t, "runs with a failed operation of the disk", runs)
	figures.add(t, "of these the daemon ended with a message", ended)
}

// faultRun plays the scenario with one fault, repairs the disk and starts again.
func faultRun(t *testing.T, fault *faultfs.Fault) (fired, died bool) {
	t.Helper()
	name := fmt.Sprintf("%s %d fails with %v", fault.Kind, fault.At, fault.Err)
	p := plug(t, faultfs.Empty())
	defer p.remove()
	l := newLedger()
	l.unwritten = fault.Kind == faultfs.Write
	p.disk.Arm(fault)
	d, err := p.tryStart()
	if err == nil {
		faultScenario(d, l)
		died = endsSoon(d, fault.Err)
		d.kill()
	} else {
		died = true
		if !errors.Is(err, errEnded) {
			t.Errorf("%s: %v", name, err)
		}
	}
	fired = p.disk.Fired()
	p.disk.Arm(nil)
	said := d.stderr.String()
	if died && (!fired || !strings.Contains(said, "jobdir: ") || strings.Contains(said, "panic")) {
		t.Errorf("%s: the daemon ended and said: %s", name, said)
	}
	if err := l.checkDead(p.dir); err != nil {
		t.Errorf("%s: %v\nthe daemon said: %s", name, err, said)
	}
	d = p.start()
	tree, err := statefs.Open(p.dir, statefs.Options{})
	must(t, err)
	load := &load{r: p.rig, ledger: l}
	load.finish(t, tree, d)
	must(t, tree.Close())
	d.stop(t)
	if t.Failed() {
		t.Logf("%s; the first daemon said: %s\nthe second one: %s", name, said, d.stderr)
	}
	return fired, died
}

// endsSoon reports whether a daemon ends by itself, as it must after some errors.
func endsSoon(d *daemon, errno syscall.Errno) bool {
	var patience time.Duration
	if errno == syscall.EIO || errno == syscall.EROFS {
		patience = 300 * time.Millisecond
	}
	select {
	case <-d.ended:
		return true
	case <-time.After(patience):
		return false
	}
}

// faultScenario acts as a client that continues after each refusal.
func faultScenario(d *daemon, l *ledger) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	go func() {
		select {
		case <-d.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	submit := func(job string) (statefs.ID, bool) {
		op, err := d.Submit(ctx, "t", job, nil)
		if err != nil {
			return statefs.ID{}, false
		}
		return op.ID, l.submitted(op.ID, job) == nil
	}
	if id, ok := submit("sleep"); ok {
		for _, ask := range []statefs.Action{statefs.Pause, statefs.Resume, statefs.Cancel} {
			_, err := d.Request(ctx, id, ask, 2*time.Second)
			l.requested(id, ask, err == nil)
		}
	}
	for _, job := range []string{"quick", "items"} {
		if id, ok := submit(job); ok {
			if _, err := d.Wait(ctx, id); err != nil && ctx.Err() == nil && !client.Unreachable(err) {
				continue
			}
		}
	}
}
