package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/outbox"
	"github.com/jobdir/jobdir/statefs"
)

// deliverTo brings what an entry names to its target.
func (d *Daemon) deliverTo(ctx context.Context, rec *statefs.Record, name statefs.EntryName) (outbox.Receipt, error) {
	it := rec.Delivery(name.Place)
	def, params, err := d.definition(rec)
	if mends(err) {
		return outbox.Receipt{}, err
	}
	if err != nil || it == nil || name.Place > len(def.Deliver) || def.Deliver[name.Place-1].Kind() != name.Kind {
		return outbox.Receipt{}, &outbox.RefusedError{Reason: "the job it was submitted under, or that target of it, cannot be read any more"}
	}
	target := def.Deliver[name.Place-1]
	parcel := outbox.Parcel{
		ID: rec.ID.String() + "." + strconv.Itoa(name.Place), Name: it.Name,
		Open: func() (io.ReadCloser, error) { return d.contentOf(rec, target.Send) },
	}
	if target.Webhook == nil {
		if d.inStorage(target.Folder.Path) {
			return outbox.Receipt{}, &outbox.RefusedError{Reason: fmt.Sprintf("the folder %s is part of the storage; deliver to another one", target.Folder.Path)}
		}
		return outbox.Folder{Path: target.Folder.Path}.Deliver(ctx, parcel)
	}
	if parcel.Name, err = target.Name(catalog.Values{Params: params, ID: rec.ID.String()}); err != nil {
		return outbox.Receipt{}, &outbox.RefusedError{Reason: err.Error()}
	}
	secrets, err := secretsOf(target.Webhook)
	if err != nil {
		return outbox.Receipt{}, err
	}
	headers := make(http.Header)
	for _, h := range target.Webhook.Headers {
		headers.Set(h.Name, h.Value)
	}
	hook := outbox.Webhook{Sender: d.sender, Method: target.Webhook.Method, Headers: headers, Secrets: secrets, Timeout: target.Webhook.Timeout}
	return hook.Deliver(ctx, parcel)
}

// inStorage says whether a folder is the storage or below it, where a delivery could be taken for state.
func (d *Daemon) inStorage(folder string) bool {
	target, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return false // and nothing is put into what is not there
	}
	storage, err := filepath.EvalSymlinks(d.owner.Dir())
	if err != nil {
		return false
	}
	below, err := filepath.Rel(storage, target)
	return err == nil && filepath.IsLocal(below)
}

// contentOf opens what is sent of an operation that has ended.
func (d *Daemon) contentOf(rec *statefs.Record, send catalog.Send) (io.ReadCloser, error) {
	switch send {
	case catalog.SendResult:
		return io.NopCloser(bytes.NewReader(rec.Footer)), nil
	case catalog.SendRecord:
		data, err := rec.Document()
		return io.NopCloser(bytes.NewReader(data)), err
	case catalog.SendLog:
	}
	f, err := os.Open(d.owner.LogPath(rec.ID))
	if errors.Is(err, fs.ErrNotExist) {
		return io.NopCloser(strings.NewReader("")), nil // it never began
	}
	if err != nil {
		return nil, err
	}
	length := int64(0)
	if rec.LogBytes != nil {
		length = *rec.LogBytes
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(f, length), f}, nil
}

// secretsOf reads what signs the requests of a webhook, each time: a file may be replaced while the daemon runs. No error has any of it.
func secretsOf(w *catalog.WebhookTarget) ([]outbox.Secret, error) {
	var text, where string
	switch {
	case w.SecretFile != "":
		data, err := os.ReadFile(w.SecretFile)
		if err != nil {
			return nil, fmt.Errorf("read the secret: %w", err)
		}
		text, where = string(data), "the file "+w.SecretFile
	case w.SecretEnv != "":
		text, where = os.Getenv(w.SecretEnv), "the environment variable "+w.SecretEnv
	default:
		return nil, nil
	}
	secrets, err := outbox.ParseSecrets(text)
	if err != nil {
		return nil, fmt.Errorf("%s holds no secret: %w", where, err)
	}
	return secrets, nil
}
