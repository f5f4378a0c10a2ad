package events

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobdir/jobdir/statefs/api"
	"github.com/jobdir/jobdir/statefs/files"
)

// segment is one file of the log.
type segment struct {
	name    string
	first   uint64 // the number of its first event
	size    int64
	changed time.Time
}

const segmentSuffix = ".ndjson"

func segmentName(first uint64) string { return fmt.Sprintf("%016d%s", first, segmentSuffix) }

// listSegments lists the files of the log, oldest first. It ignores files with other names.
func listSegments(dir string) ([]segment, error) {
	entries, err := files.ReadFolder(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []segment
	for _, entry := range entries {
		digits, ok := strings.CutSuffix(entry.Name(), segmentSuffix)
		first, err := strconv.ParseUint(digits, 10, 64)
		if !ok || err != nil || first == 0 || !entry.Type().IsRegular() || segmentName(first) != entry.Name() {
			continue
		}
		info, err := entry.Info()
		if err != nil {
			continue // it was removed since the listing
		}
		out = append(out, segment{entry.Name(), first, info.Size(), info.ModTime()})
	}
	slices.SortFunc(out, func(a, b segment) int { return strings.Compare(a.name, b.name) })
	return out, nil
}

// lastCompleteLine finds the last whole line of a segment. It returns its event, nil if there is none, the newest time
// of the events around it, and the offset after it.
func lastCompleteLine(f *os.File) (e *api.Event, newest time.Time, end int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, newest, 0, err
	}
	data, err := io.ReadAll(io.NewSectionReader(f, 0, info.Size()))
	if err != nil {
		return nil, newest, 0, err
	}
	for len(data) > 0 {
		cut := bytes.LastIndexByte(data, '\n')
		if cut < 0 {
			break
		}
		begin := bytes.LastIndexByte(data[:cut], '\n') + 1
		if e, ok := decode(data[begin:cut]); ok {
			return e, newestTime(data[:cut]), int64(cut) + 1, nil
		}
		data = data[:begin]
	}
	return nil, newest, 0, nil
}

// unordered is how many events back an event may have a later time than the last one: operations are published side by
// side.
const unordered = 100

// newestTime returns the newest time of the last events of a segment.
func newestTime(data []byte) (newest time.Time) {
	for range unordered {
		begin := bytes.LastIndexByte(data, '\n') + 1
		if e, ok := decode(data[begin:]); ok && e.At.After(newest) {
			newest = e.At
		}
		if begin == 0 {
			break
		}
		data = data[:begin-1]
	}
	return newest
}
