package work

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/notify"
)

// itemLine matches a log line by which the work reports its progress.
var itemLine = regexp.MustCompile(`^\[ *(\d{1,12}) */ *(\d{1,12}) *\]`)

// tailBytes is how much of the end of a log is read for progress. A command may write faster than
// the monitor reads; only the newest line counts.
const tailBytes = 16 << 10

// monitor watches what a command writes directly to its log and to its progress file. It ends a run
// whose log exceeds max_log, and takes the progress from both files. It sleeps until one is
// written.
type monitor struct {
	r       *Run
	outputs *itemOutputs // nil unless several items run at once
	wake    chan struct{}
	quit    chan struct{}
	ended   chan struct{}
	release []func()

	progressLine    string // the last line taken
	unknownReported bool   // a line in an unknown form was logged
	logOffset       int64
	log             *os.File
}

func startMonitor(r *Run, outputs *itemOutputs) (*monitor, error) {
	m := &monitor{r: r, outputs: outputs, wake: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{})}
	err := r.retryWhileExhausted(r.ctx, func() (err error) { m.log, err = r.readLog(); return err })
	if err != nil {
		return nil, fmt.Errorf("watch the log: %w", err)
	}
	if r.adopted {
		m.skipRead(r.report.current().At)
	} else if info, err := m.log.Stat(); err == nil {
		m.logOffset = info.Size() // skip the output of earlier runs
	}
	for _, path := range []string{r.LogPath(), r.scratch.path(scratchProgress)} {
		cancel, err := r.host.Files.Subscribe(path, m.wake)
		if err != nil {
			m.close()
			return nil, fmt.Errorf("watch %s: %w", path, err)
		}
		m.release = append(m.release, cancel)
	}
	if r.adopted {
		// No event announces what was written after an earlier daemon read the files and before
		// this watch.
		notify.Wake(m.wake)
	}
	go m.guard()
	return m, nil
}

// stop reads both files once more and ends the monitor.
func (m *monitor) stop() {
	close(m.quit)
	<-m.ended
	m.read()
	m.close()
}

func (m *monitor) close() {
	for _, cancel := range m.release {
		cancel()
	}
	_ = m.log.Close() // opened for reading
}

// readEvery is the shortest time between two reads for progress: a command may write thousands of
// times a second, and progress is for people. The size of the log is checked after every event.
const readEvery = 100 * time.Millisecond

// guard turns a panic into the end of this run alone.
func (m *monitor) guard() {
	defer close(m.ended)
	if err := m.r.guardPart("monitor", m.follow); err != nil {
		m.r.End(err)
	}
}

func (m *monitor) follow(context.Context, *Run) error {
	rest := time.NewTimer(0) // fires when the next read is allowed
	defer rest.Stop()
	rested, due := false, false
	for {
		select {
		case <-m.wake:
			m.checkSize()
			due = true
		case <-rest.C:
			rested = true
		case <-m.quit:
			return nil
		}
		if due && rested {
			m.read()
			rested, due = false, false
			rest.Reset(readEvery)
		}
	}
}

func (m *monitor) read() {
	m.readLogTail()
	m.takeProgress()
}

// checkSize ends a run whose log exceeds max_log. It returns the size of the log file.
func (m *monitor) checkSize() int64 {
	info, err := m.log.Stat()
	if err != nil {
		return m.logOffset
	}
	if limit := int64(m.r.def.MaxLog); limit > 0 {
		if all := info.Size() + m.outputs.size(); all > limit {
			m.r.End(&Error{
				Code: "log_limit",
				Err:  fmt.Errorf("the log is larger than max_log allows: %d bytes, %s allowed", all, m.r.def.MaxLog),
			})
		}
	}
	return info.Size()
}

func (m *monitor) readLogTail() {
	size := m.checkSize()
	if size == m.logOffset {
		if m.outputs != nil {
			m.r.alive() // an item's output or the progress file was written
		}
		return
	}
	if size < m.logOffset {
		m.r.host.Logger.Warn("the log was truncated while its operation runs: its earlier content is lost, and readers may see its end twice", "id", m.r.id, "from", m.logOffset, "to", size)
		m.logOffset = 0
	}
	from := max(m.logOffset, size-tailBytes)
	m.logOffset = size
	text := make([]byte, size-from)
	n, err := m.log.ReadAt(text, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return
	}
	if done, total, ok := lastItemLine(text[:n]); ok {
		m.r.setProgress(done, &total, "")
		return
	}
	m.r.alive()
}

// lastItemLine finds the last "[ done / total ]" at the start of a line.
func lastItemLine(text []byte) (done, total int64, ok bool) {
	for len(text) > 0 {
		begin := bytes.LastIndexByte(text[:len(text)-1], '\n') + 1
		if text[begin] == '[' {
			if found := itemLine.FindSubmatch(text[begin:]); found != nil {
				done, _ = strconv.ParseInt(string(found[1]), 10, 64) // at most twelve digits
				total, _ = strconv.ParseInt(string(found[2]), 10, 64)
				return done, total, true
			}
		}
		text = text[:begin]
	}
	return 0, 0, false
}

// skipRead treats what was written before the time read as read: an earlier daemon read it, and
// knew which of the two files was newer.
func (m *monitor) skipRead(read time.Time) {
	if info, err := m.log.Stat(); err == nil && info.ModTime().Before(read) {
		m.logOffset = info.Size()
	}
	if text, at := m.readProgress(); at.Before(read) {
		found, unknown := lastProgress(text, "")
		m.progressLine, m.unknownReported = found.line, unknown != ""
	}
}

// takeProgress takes the last complete line of the progress file that parseProgress accepts. The
// command may append to the file or rewrite it. The first line in another form is logged.
func (m *monitor) takeProgress() {
	text, _ := m.readProgress()
	found, unknown := lastProgress(text, m.progressLine)
	if unknown != "" && !m.unknownReported {
		m.unknownReported = true
		m.r.logLine(fmt.Sprintf("  A line in JOBDIR_PROGRESS is passed over: %q. "+
			`Write DONE TOTAL [PHASE] or {"done": 3, "total": 7, "phase": "TEXT"}.`, truncate(unknown, 80)))
	}
	if found.line != "" && found.line != m.progressLine {
		m.progressLine = found.line
		m.r.setProgress(found.done, found.total, found.phase)
	}
}

// readProgress returns the end of the progress file and its modification time, or nothing if the
// command removed or replaced the file.
func (m *monitor) readProgress() (text []byte, at time.Time) {
	path := m.r.scratch.path(scratchProgress)
	if info, err := os.Lstat(path); err != nil || info.Size() == 0 {
		return nil, at // mostly the command writes no progress
	}
	text, at, _ = files.ReadEnd(path, 0, tailBytes)
	return text, at
}

// progressLine is a parsed line of the progress file.
type progressLine struct {
	line  string // "" for none
	done  int64
	total *int64
	phase string
}

// lastProgress returns the last complete line with progress, and the first line in an unknown form
// after the line taken, or of all lines if taken is not found. A JSON object is complete without a
// newline.
func lastProgress(text []byte, taken string) (last progressLine, unknown string) {
	lines := strings.Split(string(text), "\n")
	if end := len(lines) - 1; !json.Valid([]byte(lines[end])) || !strings.HasPrefix(lines[end], "{") {
		lines = lines[:end]
	}
	if len(text) == tailBytes {
		lines = lines[min(1, len(lines)):] // the first line may be cut off
	}
	for _, line := range slices.Backward(lines) {
		if found, ok := parseProgress(line); !ok && strings.TrimSpace(line) != "" {
			unknown = line
		} else if ok && last.line == "" {
			last = found
		}
		if last.line != "" && line == taken {
			break
		}
	}
	return last, unknown
}

// parseProgress parses a line "done total [phase]" or a JSON object with these members. A total
// that is not a number, such as "-", means unknown.
func parseProgress(line string) (found progressLine, ok bool) {
	found.line = line
	if strings.HasPrefix(line, "{") {
		var object struct {
			Done, Total *int64
			Phase       string
		}
		if json.Unmarshal([]byte(line), &object) != nil || object.Done == nil || *object.Done < 0 {
			return progressLine{}, false
		}
		if object.Total != nil && *object.Total >= 0 {
			found.total = object.Total
		}
		found.done, found.phase = *object.Done, strings.Join(strings.Fields(object.Phase), " ")
		return found, true
	}
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return progressLine{}, false
	}
	done, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil || done < 0 {
		return progressLine{}, false
	}
	found.done = done
	if len(fields) > 1 {
		if n, err := strconv.ParseInt(fields[1], 10, 64); err == nil && n >= 0 {
			found.total = &n
		}
		found.phase = strings.Join(fields[2:], " ")
	}
	return found, true
}
