package torture

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/internal/faultfs"
	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/machine"
)

// plugged is a rig whose storage is on a disk of internal/faultfs.
type plugged struct {
	*rig
	disk    *faultfs.Disk
	mounted *faultfs.Mounted
	at      string
}

// plug mounts a disk with an image for the storage of a new rig, or skips the test if that is not possible.
func plug(t *testing.T, image *faultfs.Image) *plugged {
	t.Helper()
	if err := faultfs.CanMount(); err != nil {
		t.Skip(err)
	}
	at := t.TempDir()
	p := &plugged{rig: newRig(t, filepath.Join(at, "storage")), at: at}
	p.cuts = true
	p.insert(image)
	t.Cleanup(p.remove)
	return p
}

// insert mounts a new disk.
func (p *plugged) insert(image *faultfs.Image) {
	p.t.Helper()
	p.disk = faultfs.NewDisk(image)
	mounted, err := faultfs.Mount(p.at, p.disk)
	must(p.t, err)
	p.mounted = mounted
	must(p.t, bootAgain(p.dir))
}

// bootAgain has the index of ended operations say that it was written in an earlier boot. After a real power failure
// the boot ID is another one, and the index counts only if it was synced.
func bootAgain(dir string) (err error) {
	f, err := os.OpenFile(filepath.Join(dir, "history.db"), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	boot := []byte(machine.This().Boot)
	data = bytes.ReplaceAll(data, boot, bytes.Repeat([]byte("0"), len(boot)))
	_, err = f.WriteAt(data, 0)
	return errors.Join(err, f.Sync())
}

// remove ends every process of the rig and unmounts the disk.
func (p *plugged) remove() {
	if p.mounted == nil {
		return
	}
	p.endAll()
	if err := p.mounted.Close(); err != nil {
		p.t.Error(err)
	}
	p.mounted = nil
}

// endAll kills every process of the rig, as a power cut does.
func (r *rig) endAll() {
	until(r.t, "no process is left", func() bool {
		left := r.processes()
		for _, p := range left {
			p.kill()
		}
		return len(left) == 0
	})
}

// TestPowerCutLoop cuts the power repeatedly under load. Unsynced data is lost, by one of three models.
func TestPowerCutLoop(t *testing.T) {
	t.Parallel()
	p := plug(t, faultfs.Empty())
	l := &load{r: p.rig, ledger: newLedger()}
	cycles, forgotten := prooftest.Count(4, 12, 200), 0
	for cycle := range cycles {
		d := p.start()
		tree, err := statefs.Open(p.dir, statefs.Options{})
		must(t, err)
		l.settle(t, tree, d)
		l.endUnknown(t, tree, d)
		must(t, tree.Close())
		stop := l.run(d)
		p.pause(d, 100*time.Millisecond)
		p.disk.Cut()
		p.endAll()
		d.kill()
		stop()
		image := p.drawImage()
		forgotten += len(p.disk.Journal())
		p.remove()
		p.insert(image)
		tree, err = statefs.Open(p.dir, statefs.Options{})
		must(t, err)
		for _, err := range []error{l.ledger.checkDead(p.dir), checkRecords(p.dir), p.checkEffects(tree)} {
			if err != nil {
				t.Fatalf("cycle %d, after a cut, %s: %v\nthe daemon said: %s", cycle, image.Model, err, d.stderr)
			}
		}
		must(t, tree.Close())
	}
	l.conclude(t)
	figures.add(t, "power cuts", cycles)
	figures.add(t, "operations acknowledged and found again", len(l.ledger.ops))
	figures.add(t, "answers held against the disk", l.ledger.answers)
	figures.add(t, "changes and syncs on the disk", forgotten)
}

// drawImage draws the content of the disk after the cut.
func (p *plugged) drawImage() *faultfs.Image {
	replay := p.disk.Replay()
	for replay.Next() {
	}
	return replay.Draw(p.random.Uint64())
}

// wantNoneOf fails the test if corrupt/ contains a file of an acknowledged operation.
func (l *ledger) wantNoneOf(t *testing.T, names []string) {
	t.Helper()
	for _, name := range names {
		l.each(func(id statefs.ID, _ *acknowledged) {
			if strings.Contains(name, id.String()) {
				t.Errorf("corrupt/ holds %s", name)
			}
		})
	}
}
