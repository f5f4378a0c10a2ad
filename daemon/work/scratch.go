package work

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/jobdir/jobdir/statefs/files"
)

// resultLimit bounds the JSON object that a command leaves as its result.
const resultLimit = 16 << 20

// scratch is the folder of one run, ID.run beside the log, in which the daemon and a command exchange small files:
//
//	params.json   the parameters, for JOBDIR_PARAMS
//	result.json   what the command leaves at JOBDIR_RESULT; result-N.json that of item N
//	progress      the lines it writes to JOBDIR_PROGRESS
//	item-N.log    what the command of item N writes while several run at once
//	items.journal which items have begun, and where in the log their ends begin
//
// It is removed once the record holds the end of the run, not earlier. The files of one item are
// removed once its line is written to the item file.
type scratch struct{ dir string }

// The files of every folder of a run, and the result of the command of a whole run.
const scratchParams, scratchProgress, scratchResult = "params.json", "progress", "result.json"

// ScratchFolder is the scratch folder of a run whose log has the given path.
func ScratchFolder(logPath string) string {
	return logPath[:len(logPath)-len(filepath.Ext(logPath))] + ".run"
}

// newScratch makes the folder of a run. The folder of an adopted run is in use: only missing files,
// which a power cut or a person may have removed, are created.
func newScratch(logPath string, params []byte, adopted bool) (scratch, error) {
	s := scratch{ScratchFolder(logPath)}
	err := files.MakeNewFolder(s.dir)
	if errors.Is(err, fs.ErrExist) {
		if err = nil; !adopted {
			err = errors.Join(files.RemoveFolder(s.dir), files.MakeFolder(s.dir))
		}
	}
	if err != nil {
		return s, fmt.Errorf("make the folder of the run: %w", err)
	}
	for _, file := range []struct {
		name    string
		content []byte
	}{{scratchParams, append(params, '\n')}, {scratchProgress, nil}} {
		err := s.put(file.name, file.content)
		switch {
		case err == nil, adopted && errors.Is(err, fs.ErrExist):
		case adopted:
			return s, fmt.Errorf("make the folder of the run: %w", err)
		default:
			return s, errors.Join(fmt.Errorf("make the folder of the run: %w", err), s.remove())
		}
	}
	return s, nil
}

// RemoveScratch removes the scratch folder of a run whose log has the given path.
func RemoveScratch(logPath string) error { return scratch{ScratchFolder(logPath)}.remove() }

func (s scratch) put(name string, content []byte) error { return files.WriteNew(s.path(name), content) }

func (s scratch) path(name string) string { return filepath.Join(s.dir, name) }

func (s scratch) remove() error {
	if s.dir == "" {
		return nil
	}
	return files.RemoveFolderWith(s.dir, scratchParams, scratchProgress, scratchResult)
}

// drop removes a file that is no longer needed. A missing file is no error.
func (s scratch) drop(name string) error {
	if err := os.Remove(s.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// readResult reads a result file and returns the members of its JSON object in order, or nil if
// there is no file. The file stays: until the record, or the line of the item, is written, a daemon
// that starts after a crash must read it again.
func (s scratch) readResult(name string) ([]field, error) {
	f, err := files.OpenRegular(s.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the result: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(f, resultLimit+1))
	err = errors.Join(err, f.Close())
	if err != nil {
		return nil, fmt.Errorf("read the result: %w", err)
	}
	if len(data) > resultLimit {
		return nil, fmt.Errorf("the result is larger than %d bytes", resultLimit)
	}
	return decodeFields(data)
}

// decodeFields decodes a JSON object and keeps the order of its members.
func decodeFields(data []byte) ([]field, error) {
	const want = "the result is not one JSON object"
	if !json.Valid(data) {
		var probe any
		return nil, fmt.Errorf("%s: %w", want, json.Unmarshal(data, &probe))
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	start, err := decoder.Token()
	if err != nil || start != json.Delim('{') {
		return nil, fmt.Errorf("%s but starts with %v", want, start)
	}
	var fields []field
	for decoder.More() {
		name, err := decoder.Token()
		var value json.RawMessage
		if err = errors.Join(err, decoder.Decode(&value)); err != nil {
			return nil, fmt.Errorf("%s: %w", want, err)
		}
		fields = append(fields, field{fmt.Sprint(name), value})
	}
	return fields, nil
}
