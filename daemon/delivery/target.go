package delivery

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"mime"
	"os"
	"path"
	"strconv"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/outbox"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
)

// sender sends what is delivered, and records the progress in the entry. It neither reads nor writes records.
type sender struct {
	config Config
	shared *outbox.Shared // what the targets share
}

// targetOf returns the target of an entry as the job defines it, or nil if the definition cannot be
// read or no longer matches.
func (s *sender) targetOf(rec *statefs.Record, name statefs.EntryName) *catalog.Delivery {
	def, err := s.config.Definition(rec)
	if err != nil || name.Place > len(def.Deliver) || def.Deliver[name.Place-1].Kind.Name != name.Kind {
		return nil
	}
	return def.Deliver[name.Place-1]
}

// send delivers an entry to its target, and records the progress in the entry.
func (s *sender) send(ctx context.Context, rec *statefs.Record, name statefs.EntryName,
	entry *statefs.OutboxEntry,
) (*statefs.DeliveryOutput, error) {
	it := rec.Delivery(name.Place)
	def, values, err := s.config.Job(rec)
	if err != nil {
		return nil, &outbox.LocalError{Err: err}
	}
	if def == nil || it == nil || name.Place > len(def.Deliver) || def.Deliver[name.Place-1].Kind.Name != name.Kind {
		return nil,
			&outbox.RefusedError{Reason: "the job it was submitted under, or that target of it, cannot be read any more"}
	}
	to := def.Deliver[name.Place-1]
	parcel := outbox.Parcel{
		ID:   name.ID.String() + "." + strconv.Itoa(name.Place), // the same at each try
		Name: it.Name, Type: mediaType(to.Send, ""), Upload: entry.Upload,
		Expand: func(text string) string { return catalog.Expand(text, values) },
		Open:   func() (outbox.Content, error) { return s.contentOf(rec, to.Send) },
		Keep: func(up *statefs.Upload) error {
			entry.Upload = up
			return s.saveProgress(name, entry)
		},
	}
	if to.Send == outbox.SendArtifacts {
		return s.sendArtifacts(ctx, to, values, parcel, name, entry)
	}
	if !to.Named() { // the record does not have the name
		if parcel.Name, err = to.Name(values); err != nil {
			return nil, &outbox.RefusedError{Reason: err.Error()}
		}
	}
	receipt, err := to.Target(s.shared).Deliver(ctx, parcel)
	return &statefs.DeliveryOutput{
		Location: receipt.Location, Bytes: receipt.Bytes, SHA256: receipt.SHA256, Bucket: receipt.Bucket,
		Object: receipt.Object, ETag: receipt.ETag,
	}, err
}

// saveProgress writes the progress of a delivery into its entry, if the entry still exists.
// It does not recreate a removed entry.
func (s *sender) saveProgress(name statefs.EntryName, entry *statefs.OutboxEntry) error {
	err := s.config.Owner.Outbox.Rewrite(name, entry)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &outbox.LocalError{Err: errors.New("its entry was removed from the outbox")}
	case err != nil:
		return &outbox.LocalError{Err: err}
	}
	return nil
}

// abortTimeout bounds the time for aborting an upload: the client of a drop request may wait for
// it.
const abortTimeout = 10 * time.Second

// abort tells the target to abort the unfinished upload of an entry. If the target cannot be
// reached, the entry still names the upload.
func (s *sender) abort(ctx context.Context, rec *statefs.Record, name statefs.EntryName, entry *statefs.OutboxEntry) {
	to := s.targetOf(rec, name)
	if to == nil || entry.Upload == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	if err := to.Target(s.shared).Abort(ctx, entry.Upload); err != nil {
		s.config.Logger.Warn("partly sent delivery left on the server", "entry", name, "upload", entry.Upload.ID, "object",
			entry.Upload.Name, "error", err)
		return
	}
	entry.Upload = nil
}

// inMemory is a content in memory.
type inMemory struct{ *bytes.Reader }

// Close implements io.Closer.
func (inMemory) Close() error { return nil }

// filePart is the first size bytes of a file.
type filePart struct {
	*os.File
	size int64
}

// Size returns the number of bytes that are sent.
func (p filePart) Size() int64 { return p.size }

// contentOf opens the content that a target gets of an ended operation.
func (s *sender) contentOf(rec *statefs.Record, send outbox.Send) (outbox.Content, error) {
	switch send {
	case outbox.SendResult:
		return inMemory{bytes.NewReader(rec.Footer)}, nil
	case outbox.SendRecord:
		data, err := rec.Document()
		return inMemory{bytes.NewReader(data)}, err
	case outbox.SendLog, outbox.SendArtifacts:
	}
	f, err := files.OpenRegular(s.config.Owner.LogPath(rec.ID))
	if errors.Is(err, fs.ErrNotExist) {
		return inMemory{bytes.NewReader(nil)}, nil // the operation never started
	}
	if err != nil {
		return nil, err
	}
	length := int64(0)
	if rec.LogBytes != nil {
		length = *rec.LogBytes
	}
	return filePart{f, length}, nil
}

// mediaType returns the media type of what is delivered. artifact is the name of the artifact, or "".
func mediaType(send outbox.Send, artifact string) string {
	switch send {
	case outbox.SendResult, outbox.SendRecord:
		return "application/json"
	case outbox.SendLog:
		return "text/plain; charset=utf-8"
	case outbox.SendArtifacts:
	}
	return cmp.Or(mime.TypeByExtension(path.Ext(artifact)), "application/octet-stream")
}
