package statefs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/steps"
)

// Output are the files that the work writes beside the record: logs, item results, progress and artifacts. It opens
// them for appending, and makes durable what the work left unsynced.
type Output struct{ *operations }

// AppendLog opens the log of an operation for appending and creates it if necessary; step is the optional step whose
// log it is, "" for none. It opens the file through its own folder, never through jobs/, so that log lines cause no
// events there.
func (o *Output) AppendLog(id ID, step string) (*os.File, error) {
	return o.Append(filepath.Join(o.dir, workFile(id, step, ".log")))
}

// RemoveEmptyLog removes the log of finished work if it is empty; step is as in AppendLog. A command has a log from
// the start, because it writes its output there directly, and many commands never write any.
func (o *Output) RemoveEmptyLog(id ID, step string) error {
	name := workFile(id, step, ".log")
	info, err := os.Lstat(filepath.Join(o.dir, name)) // most have no log, and root would open two folders
	if err == nil && (!info.Mode().IsRegular() || info.Size() > 0) {
		return nil
	}
	if err == nil {
		err = o.root.Remove(name)
	}
	if files.IsMissing(err) {
		return nil
	}
	return err
}

// AppendItems opens the item results of an operation for appending after the last complete line; step is as in
// AppendLog.
func (o *Output) AppendItems(id ID, step string) (*os.File, error) {
	f, err := o.Append(filepath.Join(o.dir, workFile(id, step, itemsSuffix)))
	if err != nil {
		return nil, err
	}
	if err := repairItems(f); err != nil {
		return nil, errors.Join(fmt.Errorf("repair the item results of %s: %w", id, err), f.Close())
	}
	return f, nil
}

// Append opens a file of the work, by its whole path, for reading and appending, and creates it if necessary.
// Anything but a regular file goes to corrupt/ first: a fifo or a device would swallow the lines.
func (o *Output) Append(name string) (*os.File, error) {
	open := func() (*os.File, error) {
		f, _, err := files.Regular(files.OpenFile(name, os.O_RDWR|os.O_APPEND|os.O_CREATE))
		return f, err
	}
	f, err := open()
	if info, odd := os.Lstat(name); err != nil && odd == nil && !info.Mode().IsRegular() {
		relative, _ := filepath.Rel(o.dir, name)
		if err := o.corrupt.clearName(relative); err != nil {
			return nil, err
		}
		f, err = open()
	}
	return f, err
}

// RestoreItems writes open item results under their name again, if a folder, fifo, link, socket or
// device took it. That goes to corrupt/.
func (o *Output) RestoreItems(open *os.File) error {
	if info, err := os.Lstat(open.Name()); err != nil || info.Mode().IsRegular() {
		return nil //nolint:nilerr // item results that a person removed stay removed
	}
	f, err := o.Append(open.Name())
	if err != nil {
		return fmt.Errorf("write the item results %s again: %w", filepath.Base(open.Name()), err)
	}
	_, err = io.Copy(f, io.NewSectionReader(open, 0, math.MaxInt64))
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the item results %s again: %w", filepath.Base(open.Name()), err)
	}
	return nil
}

// repairItems removes an incomplete last line that a crash left, so that the next line does not
// become part of it.
func repairItems(f *os.File) error {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	end := info.Size()
	block := make([]byte, 4<<10)
	for end > 0 {
		from := max(0, end-int64(len(block)))
		n, err := f.ReadAt(block[:end-from], from)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if i := bytes.LastIndexByte(block[:n], '\n'); i >= 0 {
			end = from + int64(i) + 1
			break
		}
		end = from
	}
	if end == info.Size() {
		return nil
	}
	return f.Truncate(end)
}

// WriteProgress replaces the progress file without a sync.
func (o *Output) WriteProgress(id ID, p Progress) error {
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("progress of %s: %w", id, err)
	}
	return o.files.ReplaceUnsynced(dayFile(id, ".progress"), append(data, '\n'))
}

// syncersOfFiles is how many files are synced at once, so that the disk can combine their syncs.
const syncersOfFiles = 8

// SyncArtifacts makes the artifacts of an operation and their names durable; the work writes them
// without a sync. Files that cannot be opened are skipped. The error is a *files.SyncError if a sync
// fails.
func (o *Output) SyncArtifacts(id ID) error {
	if o.options.Durability != Power {
		return nil
	}
	var paths []string
	err := filepath.WalkDir(o.ArtifactsPath(id), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case unreadable(err):
			return nil
		case err != nil:
			return err
		case entry.IsDir() || entry.Type().IsRegular():
			paths = append(paths, path)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("list the artifacts of %s: %w", id, err)
	}
	if len(paths) == 0 {
		return nil
	}
	if err := ForEachParallel(paths, syncersOfFiles, o.syncPath); err != nil {
		return err
	}
	return o.syncDay(id.Day())
}

func (o *Output) syncPath(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|files.Nonblock, 0)
	if unreadable(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open what is to be delivered: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing was written through it
	return o.files.Sync(f)
}

// unreadable reports whether err means that a file does not exist or may not be read.
func unreadable(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
}

// itemLimit bounds one line of item results, in bytes.
const itemLimit = 16 << 20

// ReadItems calls each with every complete line of an operation's item results, in order, without
// the newline; step is the optional step whose results they are, "" for none. The slice is valid
// only during the call. A last line without a newline was cut off by a crash and is skipped, and so
// is a line that is too long. Missing item results are not an error.
func (s *storage) ReadItems(id ID, step string, each func(line []byte) error) error {
	return s.readItemsOf(id, workFile(id, step, itemsSuffix), each)
}

func (s *storage) readItemsOf(id ID, name string, each func(line []byte) error) error {
	f, _, err := s.openRegular(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if errors.Is(err, files.ErrIrregular) { // as if the file did not exist
		return s.corrupt.clearName(name)
	}
	if err != nil {
		return fmt.Errorf("read the item results of %s: %w", id, err)
	}
	defer func() { _ = f.Close() }() // opened for reading
	lines := bufio.NewReaderSize(f, 64<<10)
	var line []byte
	for {
		part, err := lines.ReadSlice('\n')
		if len(line) <= itemLimit {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the item results of %s: %w", id, err)
		}
		if len(line) <= itemLimit {
			if err := each(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
				return err
			}
		}
		line = line[:0]
	}
}

// itemRun is the beginning of an item result line, up to its run.
var itemRun = regexp.MustCompile(`^(\{"item":\d+,"run":)\d+`)

// itemsCount reports whether the item results of a run of a step count: not if a person has gone
// back to the step since.
func (r *Record) itemsCount(step string, run int) bool {
	s := steps.Find(r.Steps, step)
	return s == nil || run >= s.ItemsFrom
}

// copyItems copies the successful item results that still count from files of an ended operation
// into a file of a new one, with run 0.
func (s *storage) copyItems(old *Record, to string, from ...string) error {
	inherited := false
	return s.files.Fill(to, func(out io.Writer) (bool, error) {
		for _, name := range from {
			err := s.readItemsOf(old.ID, name, func(line []byte) error {
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

// ArtifactName returns the name under which an artifact is listed and fetched: its file name, with
// bytes that a URL cannot carry escaped as %0A. A % is escaped too where it would be read as such
// an escape.
func ArtifactName(file string) string {
	plain := utf8.ValidString(file) && !strings.ContainsFunc(file, unaddressable)
	if plain && ArtifactFile(file) == file {
		return file
	}
	var b strings.Builder
	for len(file) > 0 {
		c, size := utf8.DecodeRuneInString(file)
		if c == '%' || unaddressable(c) || c == utf8.RuneError && size == 1 {
			fmt.Fprintf(&b, "%%%02X", file[0])
		} else {
			b.WriteString(file[:size])
		}
		file = file[size:]
	}
	return b.String()
}

// unaddressable reports whether a character is not allowed in the path of a URL.
func unaddressable(c rune) bool { return c < ' ' || c == 0x7f || c == '\\' }

// ArtifactFile returns the file name of an artifact, given its listed name.
func ArtifactFile(name string) string {
	file, err := url.PathUnescape(name)
	if err != nil {
		return name
	}
	return file
}

// ReadProgress returns the last progress of an operation. The error wraps fs.ErrNotExist if it
// never reported any.
func (h *operations) ReadProgress(id ID) (Progress, error) {
	var p Progress
	name := dayFile(id, ".progress")
	data, err := h.readRegular(name, 1<<16)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return p, &CorruptError{name, err.Error()}
	}
	return p, nil
}

// OpenStepLog opens the log that contains the output of a step, between LogFrom and LogTo: the
// step's own log, or that of the operation. The error wraps fs.ErrNotExist if it does not exist
// yet.
func (h *operations) OpenStepLog(id ID, step *steps.Step) (*os.File, error) {
	if step.Log == "" {
		return h.OpenLog(id)
	}
	if step.Log != step.Name+".log" || strings.Contains(step.Log, "/") {
		return nil, &CorruptError{dayFile(id, ".json"), fmt.Sprintf("its step %s has the log %q, which is none of its files",
			shorten(step.Name), shorten(step.Log))}
	}
	f, _, err := h.openRegular(stepFile(id, step.Name, ".log"))
	return f, err
}

// An optional step runs in parallel with the others and has its own files in ID.steps/: NAME.log,
// NAME.items.ndjson, NAME.exit and, while it runs, NAME.run/.

// workFile returns the name of a file that the work writes, relative to the storage directory; step is its optional
// step, "" for none.
func workFile(id ID, step, suffix string) string {
	if step == "" {
		return dayFile(id, suffix)
	}
	return stepFile(id, step, suffix)
}

// stepFile returns the name of a file of an optional step, relative to the storage directory.
func stepFile(id ID, step, suffix string) string {
	return path.Join(dayFile(id, ".steps"), step+suffix)
}

// StepLogPath returns the path of the log of an optional step.
func (s *storage) StepLogPath(id ID, step string) string {
	return filepath.Join(s.dir, stepFile(id, step, ".log"))
}

// MakeStepFolder makes the folder of the optional steps of an operation.
func (h *operations) MakeStepFolder(id ID) error {
	if err := files.MakeFolder(filepath.Join(h.dir, dayFile(id, ".steps"))); err != nil {
		return fmt.Errorf("make the folder of the optional steps of %s: %w", id, err)
	}
	return nil
}

// OpenLog opens the log of an operation for reading. The error wraps fs.ErrNotExist until the work
// begins.
func (h *operations) OpenLog(id ID) (*os.File, error) {
	f, _, err := h.openRegular(dayFile(id, ".log"))
	return f, err
}
