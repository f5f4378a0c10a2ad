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
	log, err := s.tree.OpenLog(id)
	return serveLog(w, rec, id.String()+".log", log, err, func(size int64) (from, to int64) {
		if rec.LogBytes == nil {
			return 0, size
		}
		w.Header().Set("ETag", `"`+strconv.FormatInt(*rec.LogBytes, 10)+`"`)
		return 0, min(size, *rec.LogBytes) // bytes written after the end of the operation are not part of its log
	})
}

// serveLog answers with the part of a log that shown returns for its size, and closes the log; err is the error of
// opening it. Without a log the answer is empty. An irregular file in place of the log of a live operation counts as
// none: the daemon moves it away when the work begins.
func serveLog(w *front.Response, rec *statefs.Record, name string, log *os.File, err error,
	shown func(size int64) (from, to int64),
) error {
	var content io.ReadSeeker = strings.NewReader("")
	switch {
	case err == nil:
		defer func() { _ = log.Close() }() // opened for reading
		info, err := log.Stat()
		if err != nil {
			return err
		}
		content = log // the kernel can send the whole file
		if from, to := shown(info.Size()); from > 0 || to < info.Size() {
			content = io.NewSectionReader(log, from, to-from)
		}
	case !errors.Is(err, fs.ErrNotExist) && (!errors.Is(err, files.ErrIrregular) || rec.LogBytes != nil):
		return err
	}
	attach(w.Header(), front.MediaText+"; charset=utf-8", name)
	return w.ServeContent(time.Time{}, content)
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
	log, err := s.tree.OpenStepLog(id, step)
	return serveLog(w, rec, id.String()+"."+step.Name+".log", log, err, func(size int64) (from, to int64) {
		from, to, _ = step.OutputOf(int(wanted), size)
		return from, to
	})
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
	file, info, err := files.Regular(root.OpenFile(escaped, os.O_RDONLY|syscall.O_NONBLOCK, 0))
	if errors.Is(err, fs.ErrNotExist) && escaped != name {
		file, info, err = files.Regular(root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)) // name unescaped
	}
	if machine.OutOfFiles(err) {
		return err // the file may exist
	}
	if err != nil {
		return missing
	}
	defer func() { _ = file.Close() }() // opened for reading
	attach(w.Header(), front.MediaFile, path.Base(name))
	return w.ServeContent(info.ModTime(), file)
}
