package statefs

import (
	"encoding/json"
	"errors"
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
// on the disk under their name before the record is, so a record that says retry_of has them. What an optional step has done goes to where the new
// operation does that step: it may be a required one there.
func (t *Tree) inheritItems(from ID, to *Record) error {
	old, err := t.ReadRecord(from)
	if err != nil {
		return fmt.Errorf("inherit the items of %s: %w", from, err)
	}
	sources := []string{dayFile(from, itemsSuffix)}
	for i := range old.Steps {
		name := old.Steps[i].Name
		if old.Steps[i].Log == "" {
			continue
		}
		here := steps.Find(to.Steps, name)
		switch {
		case here == nil:
		case here.Optional:
			err = errors.Join(t.makeStepFolder(to.ID), t.copyItems(old, stepFile(to.ID, name, itemsSuffix), stepFile(from, name, itemsSuffix)))
		default:
			sources = append(sources, stepFile(from, name, itemsSuffix))
		}
	}
	err = errors.Join(err, t.copyItems(old, dayFile(to.ID, itemsSuffix), sources...))
	if err == nil {
		// One that is being deleted loses its record before its items: as long as there is one, they were whole.
		_, err = t.root.Lstat(dayFile(from, ".json"))
	}
	if err != nil {
		return fmt.Errorf("inherit the items of %s: %w", from, err)
	}
	return nil
}

// copyItems writes the item results that count and went well from files of an ended operation into one of a new one, as of no run of that.
func (t *Tree) copyItems(old *Record, to string, from ...string) error {
	inherited := false
	return t.files.fill(to, func(out io.Writer) (bool, error) {
		for _, name := range from {
			err := t.readItemsOf(old.ID, name, func(line []byte) error {
				var result struct {
					OK   bool   `json:"ok"`
					Run  int    `json:"run"`
					Step string `json:"step"`
				}
				if json.Unmarshal(line, &result) != nil || !result.OK || !old.counts(result.Step, result.Run) {
					return nil //nolint:nilerr // a line that is not the daemon's is no result
				}
				inherited = true
				_, err := out.Write(append(itemRun.ReplaceAll(line, []byte("${1}0")), '\n'))
				return err
			})
			if err != nil {
				return inherited, err
			}
		}
		return inherited, nil
	})
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
