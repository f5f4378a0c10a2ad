package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// logWatch wakes a channel whenever a file is written; the daemon's is a watch.Files.
type logWatch interface {
	Subscribe(path string, wake chan<- struct{}) (cancel func(), err error)
}

// itemLine is how work says by itself how far it is.
var itemLine = regexp.MustCompile(`^\[ *(\d{1,12}) */ *(\d{1,12}) *\]`)

// glance is how much of the end of a log is read for progress. A command may write faster than anybody can read; the newest line
// is what counts.
const glance = 16 << 10

// monitor follows what a command writes straight to its log and to its progress file: it ends a run whose log grows beyond
// max_log and takes progress from both. It sleeps until one of them is written.
type monitor struct {
	r       *run
	wake    chan struct{}
	quit    chan struct{}
	ended   chan struct{}
	release []func()

	progressLine string // the line that was taken last
	logAt        int64
	log          *os.File
}

func startMonitor(r *run) (*monitor, error) {
	m := &monitor{r: r, wake: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{})}
	var log *os.File
	err := r.patiently(r.ctx, func() (err error) { log, err = r.readLog(); return err })
	if err != nil {
		return nil, fmt.Errorf("watch the log: %w", err)
	}
	m.log = log
	if r.adopted {
		m.passOver(r.report.current().At)
	} else if info, err := log.Stat(); err == nil {
		m.logAt = info.Size() // what is there is of earlier runs
	}
	for _, path := range []string{r.logPath(), r.scratch.path("progress")} {
		cancel, err := r.files.Subscribe(path, m.wake)
		if err != nil {
			m.close()
			return nil, fmt.Errorf("watch %s: %w", path, err)
		}
		m.release = append(m.release, cancel)
	}
	if r.adopted {
		// What was written since an earlier daemon read, and before the files were watched, is announced by nobody.
		select {
		case m.wake <- struct{}{}:
		default:
		}
	}
	go m.guard()
	return m, nil
}

// stop looks once more and ends the monitor.
func (m *monitor) stop() {
	close(m.quit)
	<-m.ended
	m.look()
	m.close()
}

func (m *monitor) close() {
	for _, cancel := range m.release {
		cancel()
	}
	_ = m.log.Close() // opened for reading
}

// readEvery is the shortest time between two reads for progress: a command may write thousands of times a second, and progress is
// for people. The size of the log is looked at each time.
const readEvery = 100 * time.Millisecond

// guard turns a panic into the end of this run alone.
func (m *monitor) guard() {
	defer close(m.ended)
	defer func() {
		if p := recover(); p != nil {
			m.r.logger.Error("the monitor of a run panicked", "id", m.r.id, "panic", p, "stack", string(debug.Stack()))
			m.r.end(&workError{code: panicCode, err: fmt.Errorf("the output cannot be followed: %v", p)})
		}
	}()
	m.follow()
}

func (m *monitor) follow() {
	rest := time.NewTimer(0) // fires when the last read is long enough ago
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
			return
		}
		if due && rested {
			m.look()
			rested, due = false, false
			rest.Reset(readEvery)
		}
	}
}

func (m *monitor) look() {
	m.lookAtLog()
	m.lookAtProgress()
}

// checkSize ends a run whose log has grown too large, and returns how large it is.
func (m *monitor) checkSize() int64 {
	info, err := m.log.Stat()
	if err != nil {
		return m.logAt
	}
	if limit := int64(m.r.def.MaxLog); limit > 0 {
		if all := info.Size() + m.r.outputs.size(); all > limit {
			m.r.end(&workError{code: "log_limit", err: fmt.Errorf("%w: %d bytes, %s allowed", errLogLimit, all, m.r.def.MaxLog)})
		}
	}
	return info.Size()
}

func (m *monitor) lookAtLog() {
	size := m.checkSize()
	if size == m.logAt {
		if m.r.outputs.some.Load() {
			m.r.alive() // an item wrote, or the progress file did
		}
		return
	}
	if size < m.logAt {
		m.r.logger.Warn("the log was cut while its operation runs: what was there is gone, and readers may see the end of it twice", "id", m.r.id, "from", m.logAt, "to", size)
		m.logAt = 0
	}
	from := max(m.logAt, size-glance)
	m.logAt = size
	text := make([]byte, size-from)
	n, err := m.log.ReadAt(text, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return
	}
	if done, total, ok := lastItemLine(text[:n]); ok {
		m.r.said(done, &total, "")
		return
	}
	m.r.alive()
}

// lastItemLine finds the last "[ done / total ]" at the beginning of a line.
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

// passOver takes what was written before a time for read: an earlier daemon did, and knew which of the two was newer.
func (m *monitor) passOver(read time.Time) {
	if info, err := m.log.Stat(); err == nil && info.ModTime().Before(read) {
		m.logAt = info.Size()
	}
	if text, at := m.readProgress(); at.Before(read) {
		m.progressLine, _, _, _, _ = lastProgress(text)
	}
}

// lookAtProgress takes the last whole line "done total [phase]" of the progress file, which the command appends to or writes anew.
func (m *monitor) lookAtProgress() {
	text, _ := m.readProgress()
	line, done, total, phase, ok := lastProgress(text)
	if ok && line != m.progressLine {
		m.progressLine = line
		m.r.said(done, total, phase)
	}
}

// readProgress returns the end of the progress file and when it was written; nothing when the command removed it, or put something else there.
func (m *monitor) readProgress() (text []byte, at time.Time) {
	f, err := openScratch(m.r.scratch.path("progress"))
	if err != nil {
		return nil, at
	}
	defer func() { _ = f.Close() }() // opened for reading
	info, err := f.Stat()
	if err != nil {
		return nil, at
	}
	text = make([]byte, min(info.Size(), glance))
	n, err := f.ReadAt(text, info.Size()-int64(len(text)))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, at
	}
	return text[:n], info.ModTime()
}

// lastProgress finds the last whole line that says progress.
func lastProgress(text []byte) (line string, done int64, total *int64, phase string, ok bool) {
	for {
		end := bytes.LastIndexByte(text, '\n')
		if end < 0 {
			return "", 0, nil, "", false
		}
		text = text[:end]
		line = string(text[bytes.LastIndexByte(text, '\n')+1:])
		if done, total, phase, ok = parseProgress(line); ok {
			return line, done, total, phase, true
		}
	}
}

// parseProgress reads a line "done total [phase]"; a total that is no number, such as "-", is unknown.
func parseProgress(line string) (done int64, total *int64, phase string, ok bool) {
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return 0, nil, "", false
	}
	done, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil || done < 0 {
		return 0, nil, "", false
	}
	if len(fields) > 1 {
		if n, err := strconv.ParseInt(fields[1], 10, 64); err == nil && n >= 0 {
			total = &n
		}
		phase = strings.Join(fields[2:], " ")
	}
	return done, total, phase, true
}
