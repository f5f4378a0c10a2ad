package statefs

import (
	"time"
)

// FindRecent returns the operations with this number that have a record and were submitted today or
// yesterday, local time. The storage itself gave out at most one of them. It lists two folders and
// opens no file, however long the history is.
func (t *Tree) FindRecent(number uint64) ([]ID, error) {
	var found []ID
	today := t.options.Now()
	for _, day := range []time.Time{today, today.AddDate(0, 0, -1)} {
		files, err := t.ListDay(day.Format(time.DateOnly))
		if err != nil {
			return nil, err
		}
		for _, id := range files.Records {
			if id.Sequence() == number {
				found = append(found, id)
			}
		}
	}
	return found, nil
}

// FindByNumber returns the operations with this number that have a record, whenever they were
// submitted. The storage itself gave out at most one of them. It lists day folders, the newest
// first, until it has found a match, and opens no file.
func (t *Tree) FindByNumber(number uint64) ([]ID, error) {
	days, err := t.Days()
	if err != nil {
		return nil, err
	}
	for _, day := range days {
		files, err := t.ListDay(day)
		if err != nil {
			return nil, err
		}
		var found []ID
		for _, id := range files.Records {
			if id.Sequence() == number {
				found = append(found, id)
			}
		}
		if len(found) > 0 {
			return found, nil
		}
	}
	return nil, nil
}
