package statefs

import "time"

// Recent returns the operations with a record that were submitted today or yesterday, local time, and have this number. There is at
// most one of this storage's own. It lists two folders by name and opens no file, whatever the history holds.
func (t *Tree) Recent(number uint64) ([]ID, error) {
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

// Numbered returns the operations with a record that have this number, whenever they were submitted: of those of this storage's own, there is at most one.
// It lists folders by name, those of the last days first, until it has found something, and opens no file.
func (t *Tree) Numbered(number uint64) ([]ID, error) {
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
