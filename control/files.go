package control

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/machine"
	"github.com/jobdir/jobdir/statefs/steps"
)

// logFile is GET /api/v1/operations/{id}/log: the bytes of the log file, or of a step's log. It supports Range.
func (s *streams) logFile(w *front.Response, r *front.Request) error {
	id, err := statefs.ParseID(r.Param("id"))
	if err != nil {
		return err
	}
	values, err := r.Values()
	if err != nil {
		return err
	}
	if values.Has("step") {
		return s.stepLog(w, id, &front.Query{Values: values})
	}
	if values.Has("run") {
		return front.Invalid("run", "it is one of the runs of a step: name that with step")
	}
	rec, err := statefs.ReadSubmitted(s.tree, id)
	if isUnreadable(err) {
		rec, err = new(statefs.Record), nil // the log may be all that is left
	}
	if err != nil {
		return s.view.recordError(id, err)
	}
	var content io.ReadSeeker = strings.NewReader("")
	log, err := s.tree.OpenLog(id)
	switch {
	case err == nil:
		defer func() { _ = log.Close() }() // opened for reading
		content = log
	case !noLogYet(rec, err):
		return err
	}
	if sealed := rec.LogBytes; sealed != nil && log != nil {
		// Bytes written after the end of the operation are not part of its log.
		info, err := log.Stat()
		if err != nil {
			return err
		}
		if info.Size() > *sealed {
			content = io.NewSectionReader(log, 0, *sealed)
		}
		w.Header().Set("ETag", `"`+strconv.FormatInt(*sealed, 10)+`"`)
	}
	attach(w.Header(), front.MediaText+"; charset=utf-8", id.String()+".log")
	return w.ServeContent(time.Time{}, content)
}

// noLogYet reports whether err means that there is no log. An irregular file in place of the log of a live operation
// counts as none: the daemon moves it away when the work begins.
func noLogYet(rec *statefs.Record, err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, files.ErrIrregular) && rec.LogBytes == nil
}

// Headers of a step's log: the run that wrote it, and all runs of the step that are known.
const (
	runHeader  = "X-Jobdir-Run"
	runsHeader = "X-Jobdir-Runs"
)

// stepLog answers with the output of a step in its last run, or in the run that the parameter run names.
func (s *streams) stepLog(w *front.Response, id statefs.ID, q *front.Query) error {
	name := q.Get("step")
	wanted := q.Number("run", 0, 1, 1e9)
	if err := q.Err(); err != nil {
		return err
	}
	rec, err := statefs.ReadSubmitted(s.tree, id)
	if err != nil {
		return s.view.recordError(id, err)
	}
	step := steps.Find(rec.Steps, name)
	if step == nil {
		return front.Refuse(http.StatusNotFound, "Operation '%s' has no step '%s'", id, front.Printable(name, 64)).With("id",
			id).With("parameter", "step")
	}
	runs := step.Runs()
	if wanted != 0 && !slices.Contains(runs, int(wanted)) {
		return front.Refuse(http.StatusNotFound, "Step '%s' of operation '%s' has no run %d: %s", step.Name, id, wanted,
			steps.DescribeRuns(runs)).With("id", id).With("parameter", "run").With("runs", runs)
	}
	if len(runs) > 0 {
		w.Header().Set(runHeader, strconv.Itoa(cmp.Or(int(wanted), step.Run)))
		w.Header().Set(runsHeader, strings.Trim(strings.ReplaceAll(fmt.Sprint(runs), " ", ", "), "[]"))
	}
	var content io.ReadSeeker = strings.NewReader("")
	log, err := s.tree.OpenStepLog(id, step)
	switch {
	case err == nil:
		defer func() { _ = log.Close() }() // opened for reading
		info, err := log.Stat()
		if err != nil {
			return err
		}
		from, to, _ := step.OutputOf(int(wanted), info.Size())
		content = io.NewSectionReader(log, from, to-from)
	case !noLogYet(rec, err):
		return err
	}
	attach(w.Header(), front.MediaText+"; charset=utf-8", id.String()+"."+step.Name+".log")
	return w.ServeContent(time.Time{}, content)
}

// attach makes a browser save a file instead of showing it: output of work is never executed in the daemon's origin.
func attach(h http.Header, media, name string) {
	h.Set("Content-Type", media)
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
}

// artifact is GET /api/v1/operations/{id}/artifacts/{name}.
func (s *streams) artifact(w *front.Response, r *front.Request) error {
	id, err := statefs.ParseID(r.Param("id"))
	if err != nil {
		return err
	}
	name := strings.TrimPrefix(r.Param("name"), "/")
	missing := front.Refuse(http.StatusNotFound, "Operation '%s' has no artifact '%s'", id, front.Printable(name, 200)).With("id", id)
	if !fs.ValidPath(name) || name == "." {
		return missing
	}
	escaped := statefs.ArtifactFile(name)
	rec, err := statefs.ReadSubmitted(s.tree, id)
	if err != nil {
		return s.view.recordError(id, err)
	}
	if rec.Artifacts != nil {
		missing = missing.With("artifacts", rec.Artifacts)
	}
	root, err := os.OpenRoot(s.tree.ArtifactsPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return missing
	}
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // opened for reading
	// The root confines links to the folder; O_NONBLOCK keeps a fifo from blocking.
	file, err := root.OpenFile(escaped, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) && escaped != name {
		file, err = root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // name unescaped
	}
	if machine.OutOfFiles(err) {
		return err // the file may exist
	}
	if err != nil {
		return missing
	}
	defer func() { _ = file.Close() }() // opened for reading
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return missing
	}
	attach(w.Header(), front.MediaFile, path.Base(name))
	return w.ServeContent(info.ModTime(), file)
}
