package statefs

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"regexp"

	"github.com/google/renameio/v2"

	"github.com/jobdir/jobdir/steps"
)

// itemRun is the beginning of a line of item results.
var itemRun = regexp.MustCompile(`^(\{"item":\d+,"run":)\d+`)

// counts reports whether the item results of a run of a step count: not when somebody went back to the step since.
func (r *Record) counts(step string, run int) bool {
	s := steps.Find(r.Steps, step)
	return s == nil || run >= s.ItemsFrom
}

// inheritItems gives a new operation the results of the items that the one it repeats finished well. What failed is done again. They are
// on the disk under their name before the record is, so a record that says retry_of has them.
func (t *Tree) inheritItems(from, to ID) error {
	old, err := t.ReadRecord(from)
	if err != nil {
		return fmt.Errorf("inherit the items of %s: %w", from, err)
	}
	inherited := false
	err = t.files.fill(dayFile(to, ".items.ndjson"), func(out io.Writer) (bool, error) {
		err := t.ReadItems(from, func(line []byte) error {
			var result struct {
				OK   bool   `json:"ok"`
				Run  int    `json:"run"`
				Step string `json:"step"`
			}
			if json.Unmarshal(line, &result) != nil || !result.OK || !old.counts(result.Step, result.Run) {
				return nil //nolint:nilerr // a line that is not the daemon's is no result
			}
			inherited = true
			_, err := out.Write(append(itemRun.ReplaceAll(line, []byte("${1}0")), '\n')) // of no run of this operation
			return err
		})
		return inherited, err
	})
	if err == nil {
		// One that is being deleted loses its record before its items: as long as there is one, they were whole.
		_, err = t.root.Lstat(dayFile(from, ".json"))
	}
	if err != nil {
		return fmt.Errorf("inherit the items of %s: %w", from, err)
	}
	return nil
}

// fill puts what write writes under a name, as a whole and synced; when write reports false there is nothing to put there.
func (w *files) fill(name string, write func(io.Writer) (bool, error)) error {
	target := filepath.Join(w.dir, name)
	return w.persist(func() error {
		f, err := renameio.NewPendingFile(target, renameio.WithTempDir(w.tmp), renameio.WithPermissions(fileMode), renameio.IgnoreUmask())
		if err != nil {
			return err
		}
		defer func() { _ = f.Cleanup() }() // does nothing once it has its name
		some, err := write(f)
		if err != nil || !some {
			return err
		}
		return asSyncError(target, f.CloseAtomicallyReplace())
	})
}
