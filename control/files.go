package control

import (
	"errors"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/julienschmidt/httprouter"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/steps"
)

// logFile is GET /api/v1/operations/{id}/log: the bytes of the log file, or what a step wrote in its last run, with Range.
func (s *Server) logFile(w *answer, r *http.Request, p httprouter.Params) error {
	id, err := statefs.ParseID(p.ByName("id"))
	if err != nil {
		return err
	}
	values, err := query(r)
	if err != nil {
		return err
	}
	if values.Has("step") {
		return s.stepLog(w, r, id, values.Get("step"))
	}
	rec, err := s.tree.ReadRecord(id)
	if isUnreadable(err) {
		rec, err = new(statefs.Record), nil // the log may be all that is left
	}
	if err != nil {
		return s.unknown(id, err)
	}
	var content io.ReadSeeker = strings.NewReader("")
	log, err := s.tree.OpenLog(id)
	switch {
	case err == nil:
		defer func() { _ = log.Close() }() // opened for reading
		content = log
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if sealed := rec.LogBytes; sealed != nil && log != nil {
		// What was written after the end of the operation belongs to nobody's result.
		info, err := log.Stat()
		if err != nil {
			return err
		}
		if info.Size() > *sealed {
			content = io.NewSectionReader(log, 0, *sealed)
		}
		w.Header().Set("ETag", `"`+strconv.FormatInt(*sealed, 10)+`"`)
	}
	attach(w.Header(), mediaText+"; charset=utf-8", id.String()+".log")
	return serveContent(w, r, time.Time{}, content)
}

// stepLog answers with what a step wrote in its last run.
func (s *Server) stepLog(w *answer, r *http.Request, id statefs.ID, name string) error {
	rec, err := s.tree.ReadRecord(id)
	if err != nil {
		return s.unknown(id, err)
	}
	step := steps.Find(rec.Steps, name)
	if step == nil {
		return refuse(http.StatusNotFound, "Operation '%s' has no step '%s'", id, printable(name, 64)).with("id", id).with("parameter", "step")
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
		from, to := step.Output(info.Size())
		content = io.NewSectionReader(log, from, to-from)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	attach(w.Header(), mediaText+"; charset=utf-8", id.String()+"."+step.Name+".log")
	return serveContent(w, r, time.Time{}, content)
}

// attach makes a browser keep a file instead of showing it: what work writes is never run in the daemon's name.
func attach(h http.Header, media, name string) {
	h.Set("Content-Type", media)
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
}

// artifact is GET /api/v1/operations/{id}/artifacts/{name}.
func (s *Server) artifact(w *answer, r *http.Request, p httprouter.Params) error {
	id, err := statefs.ParseID(p.ByName("id"))
	if err != nil {
		return err
	}
	name := strings.TrimPrefix(p.ByName("name"), "/")
	missing := refuse(http.StatusNotFound, "Operation '%s' has no artifact '%s'", id, printable(name, 200)).with("id", id)
	if !fs.ValidPath(name) || name == "." {
		return missing
	}
	rec, err := s.tree.ReadRecord(id)
	if err != nil {
		return s.unknown(id, err)
	}
	if rec.Artifacts != nil {
		missing = missing.with("artifacts", rec.Artifacts)
	}
	root, err := os.OpenRoot(s.tree.ArtifactsPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return missing
	}
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // opened for reading
	// Links are followed inside the folder only; O_NONBLOCK keeps a fifo from blocking.
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if statefs.OutOfFiles(err) {
		return err // it may well be there
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
	attach(w.Header(), mediaFile, path.Base(name))
	return serveContent(w, r, info.ModTime(), file)
}
