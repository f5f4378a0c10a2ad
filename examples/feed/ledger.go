package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/jobdir/jobdir/client"
)

// ledger is a file with one line for each end. The number in its last line is how far the consumer has come, so there
// is no second place that could say something else after a crash.
type ledger struct {
	file *os.File
	size int64
	last uint64
}

// line is what is kept of an end.
type line struct {
	FinishedSeq uint64 `json:"finished_seq"`
	ID          string `json:"id"`
	Job         string `json:"job"`
	State       string `json:"state"`
	Result      string `json:"result,omitempty"`
	// NeedsPerson says that it is not the end: the operation stopped for a person, and its end has a number of its own.
	NeedsPerson bool `json:"needs_person,omitempty"`
}

// openLedger opens a ledger after its last whole line. A line that was incomplete when the consumer died does
// not count.
func openLedger(path string) (*ledger, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return nil, err
	}
	l := &ledger{file: f}
	if err := l.resume(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return l, nil
}

func (l *ledger) resume() error {
	if err := syscall.Flock(int(l.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("another consumer writes %s: %w", l.file.Name(), err)
	}
	data, err := io.ReadAll(l.file)
	if err != nil {
		return err
	}
	l.size = int64(bytes.LastIndexByte(data, '\n') + 1)
	if l.size < int64(len(data)) {
		if err := l.file.Truncate(l.size); err != nil {
			return fmt.Errorf("cut off a line that is not whole: %w", err)
		}
	}
	if l.size == 0 {
		return nil
	}
	whole := data[:l.size-1]
	var newest line
	if err := json.Unmarshal(whole[bytes.LastIndexByte(whole, '\n')+1:], &newest); err != nil || newest.FinishedSeq == 0 {
		return fmt.Errorf("the last line of %s is not one of this program", l.file.Name())
	}
	l.last = newest.FinishedSeq
	return nil
}

// write adds ends and syncs them; last is the number to go on after.
func (l *ledger) write(ends []client.End, last uint64) error {
	var text bytes.Buffer
	for i := range ends {
		e := &ends[i]
		data, err := json.Marshal(line{
			e.FinishedSeq, e.ID.String(), e.Group + "/" + e.Job, string(e.State),
			string(e.Result), e.NeedsPerson,
		})
		if err != nil {
			return err
		}
		text.Write(append(data, '\n'))
	}
	if text.Len() > 0 {
		if _, err := l.file.Write(text.Bytes()); err != nil {
			return errors.Join(err, l.file.Truncate(l.size)) // as if nothing had been written
		}
		if err := l.file.Sync(); err != nil {
			return err
		}
		l.size += int64(text.Len())
	}
	l.last = last
	return nil
}

func (l *ledger) close() error { return l.file.Close() }
