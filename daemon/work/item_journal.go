package work

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/machine"
)

// itemJournal is the file in the scratch folder in which a run records what the next daemon must
// know about an item without a result line: whether its command may have begun, and at which log
// offset the end of the item is written. Each note is written before the event.
const itemJournal = "items.journal"

// itemNote is a line of the journal. The last note of a slot counts.
type itemNote struct {
	Slot int    `json:"slot"`
	Item int    `json:"item"`
	Name []byte `json:"name"`
	// Boot identifies a boot of the machine: data that is not synced may be lost by a reboot.
	Boot string `json:"boot_id"`
	// LogBytes is the length of the log before the end of the item was written to it; nil until
	// then.
	LogBytes *int64 `json:"log_bytes,omitempty"`
	// Withdrawn means that the command did not begin, because the daemon stopped first.
	Withdrawn bool `json:"withdrawn,omitempty"`
}

// journal appends a note to the journal. The work is not at fault when that fails: see DiskError.
func (w *items) journal(note *itemNote) error {
	line, err := json.Marshal(note)
	if err != nil {
		return err
	}
	err = w.r.retryWhileExhausted(w.r.ctx, func() error {
		w.notes.Lock() // one worker moves a wrong file away
		defer w.notes.Unlock()
		f, err := w.r.host.Owner.Output.Append(w.r.scratch.path(itemJournal))
		if err != nil {
			return err
		}
		// The leading newline separates the note from a line that a crash or a full disk cut off.
		_, err = f.Write(slices.Concat([]byte{'\n'}, line, []byte{'\n'}))
		return errors.Join(err, f.Close())
	})
	if err != nil {
		w.r.report.noteWriteError(err)
	}
	return err
}

// readItemJournal reads the journal of an earlier daemon: the last note of each slot. Notes that a wrong file has
// replaced are missing, see lost.
func readItemJournal(s scratch) (map[int]*itemNote, error) {
	notes := make(map[int]*itemNote)
	f, err := files.OpenRegular(s.path(itemJournal))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, files.ErrIrregular) {
		return notes, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the journal of items: %w", err)
	}
	defer func() { _ = f.Close() }() // opened for reading
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, resultLimit)
	for lines.Scan() {
		note := new(itemNote)
		if json.Unmarshal(lines.Bytes(), note) == nil && note.Slot > 0 {
			notes[note.Slot] = note
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("read the journal of items: %w", err)
	}
	return notes, nil
}

// itemKey identifies an item of a run.
type itemKey struct {
	number int
	name   string
}

// lost reports whether an earlier daemon may have begun items that are neither among its
// commands nor among the results. Their commands died with a keeper; a new run does these
// items again.
func (w *items) lost(under []Command, notes map[int]*itemNote, written map[itemKey]bool) bool {
	boot := machine.This().Boot
	for _, a := range under {
		if note := notes[a.number]; note == nil || note.Boot != boot {
			return true // the journal is incomplete
		}
	}
	for slot, note := range notes {
		if !note.Withdrawn && !w.r.hasUnclaimed(slot) && !written[itemKey{note.Item, string(note.Name)}] {
			return true
		}
	}
	return false
}

// logItemEnd writes the last lines of an item to the log, without the part that is already there:
// an earlier daemon may have been killed, or the disk may have been full, in the middle of them.
func (w *items) logItemEnd(note *itemNote, text string) error {
	r, resumed := w.r, note.LogBytes != nil
	if !resumed {
		size, err := r.log.Len()
		if err != nil {
			return err
		}
		note.LogBytes = &size
		if err := w.journal(note); err != nil {
			return err
		}
	}
	return r.retryWhileExhausted(r.ctx, func() error {
		there := 0
		if resumed {
			var err error
			if there, err = r.loggedSince(*note.LogBytes, text); err != nil {
				return err
			}
		}
		resumed = true
		switch there {
		case 0:
			return r.log.Line(text)
		case len(text):
			return nil
		}
		_, err := r.log.Write([]byte(text[there:]))
		return err
	})
}

// loggedSince returns how many bytes of text the log contains after the offset length: all of them,
// or the longest prefix of text that ends the log. text ends with a newline.
func (t *task) loggedSince(length int64, text string) (there int, err error) {
	log, err := t.readLog()
	if err != nil {
		return 0, err
	}
	defer func() { _ = log.Close() }() // opened for reading
	limit := len(text) + 64<<10        // only log lines about requests were written since
	since, err := io.ReadAll(io.NewSectionReader(log, length, int64(limit)))
	whole := []byte(text)
	switch {
	case err != nil:
		return 0, err
	case bytes.Contains(since, whole):
		return len(text), nil
	case len(since) == limit:
		return 0, nil
	}
	for there = min(len(whole), len(since)); !bytes.HasSuffix(since, whole[:there]); {
		there--
	}
	return there, nil
}
