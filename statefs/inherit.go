package statefs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/jobdir/jobdir/statefs/steps"
)

// itemRun is the beginning of an item result line, up to its run.
var itemRun = regexp.MustCompile(`^(\{"item":\d+,"run":)\d+`)

// itemsCount reports whether the item results of a run of a step count: not if a person has gone
// back to the step since.
func (r *Record) itemsCount(step string, run int) bool {
	s := steps.Find(r.Steps, step)
	return s == nil || run >= s.ItemsFrom
}

// inheritItems gives a new operation the successful item results of the operation that it repeats;
// failed items are done again. The results have their name and are on disk before the record, so
// every record with retry_of has them. Results of an optional step go to the file that the new
// operation uses for that step: the step may be required there.
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
			err = errors.Join(t.MakeStepFolder(to.ID), t.copyItems(old, stepFile(to.ID, name, itemsSuffix),
				stepFile(from, name, itemsSuffix)))
		default:
			sources = append(sources, stepFile(from, name, itemsSuffix))
		}
	}
	err = errors.Join(err, t.copyItems(old, dayFile(to.ID, itemsSuffix), sources...))
	if err == nil {
		// A deletion removes the record before the items: while there is a record, the items were
		// complete.
		_, err = t.root.Lstat(dayFile(from, ".json"))
	}
	if err != nil {
		return fmt.Errorf("inherit the items of %s: %w", from, err)
	}
	return nil
}

// copyItems copies the successful item results that still count from files of an ended operation
// into a file of a new one, with run 0.
func (t *Tree) copyItems(old *Record, to string, from ...string) error {
	inherited := false
	return t.files.Fill(to, func(out io.Writer) (bool, error) {
		for _, name := range from {
			err := t.readItemsOf(old.ID, name, func(line []byte) error {
				var result struct {
					OK   bool   `json:"ok"`
					Run  int    `json:"run"`
					Step string `json:"step"`
				}
				if json.Unmarshal(line, &result) != nil || !result.OK || !old.itemsCount(result.Step, result.Run) {
					return nil //nolint:nilerr // a line that the daemon did not write is not a result
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
