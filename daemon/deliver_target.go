package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strconv"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/outbox"
	"github.com/jobdir/jobdir/statefs"
)

// deliverTo delivers an entry to its target, and records the progress in the entry.
func (d *Daemon) deliverTo(ctx context.Context, rec *statefs.Record, name statefs.EntryName,
	entry *statefs.OutboxEntry,
) (*statefs.DeliveryOutput, error) {
	it := rec.Delivery(name.Place)
	def, params, err := d.definition(rec)
	if isTransient(err) {
		return nil, &outbox.LocalError{Err: err}
	}
	if err != nil || it == nil || name.Place > len(def.Deliver) || def.Deliver[name.Place-1].Kind() != name.Kind {
		return nil,
			&outbox.RefusedError{Reason: "the job it was submitted under, or that target of it, cannot be read any more"}
	}
	target := def.Deliver[name.Place-1]
	values := catalog.Values{Params: params, ID: rec.ID.String(), Result: returnedOnly(rec, memberOf(rec.Footer))}
	if target.Send == catalog.SendArtifacts {
		return d.deliverArtifacts(ctx, rec, target, values, name, entry)
	}
	parcel := outbox.Parcel{
		ID: deliveryID(name), Name: it.Name,
		Open: func() (outbox.Content, error) { return d.contentOf(rec, target.Send) },
	}
	var receipt outbox.Receipt
	if target.Webhook != nil {
		receipt, err = d.deliverHook(ctx, target, values, parcel)
	} else {
		receipt, err = d.deliverFile(ctx, target, values, "", parcel, name, entry)
	}
	return &statefs.DeliveryOutput{
		Location: receipt.Location, Bytes: receipt.Bytes, SHA256: receipt.SHA256, Bucket: receipt.Bucket,
		Object: receipt.Object, ETag: receipt.ETag,
	}, err
}

// deliveryID returns the ID of a delivery, which is the same at each try.
func deliveryID(name statefs.EntryName) string {
	return name.ID.String() + "." + strconv.Itoa(name.Place)
}

// deliverFile stores one file in a folder or bucket. artifact is the name of the artifact, or "".
func (d *Daemon) deliverFile(ctx context.Context, target *catalog.Delivery, values catalog.Values, artifact string,
	parcel outbox.Parcel, name statefs.EntryName, entry *statefs.OutboxEntry,
) (outbox.Receipt, error) {
	if target.S3 == nil {
		if outbox.Inside(target.Folder.Path, d.owner.Dir()) {
			return outbox.Receipt{},
				&outbox.RefusedError{Reason: fmt.Sprintf("the folder %s is part of the storage; deliver to another one",
					target.Folder.Path)}
		}
		return outbox.Folder{Path: target.Folder.Path}.Deliver(ctx, parcel)
	}
	bucket, err := d.bucketOf(target, values, artifact)
	if err != nil {
		return outbox.Receipt{}, err
	}
	parcel.Upload = entry.Upload
	parcel.Keep = func(up *statefs.Upload) error {
		entry.Upload = up
		return d.saveDeliveryProgress(name, entry)
	}
	return bucket.Deliver(ctx, parcel)
}

// deliverHook sends a request to a webhook.
func (d *Daemon) deliverHook(ctx context.Context, target *catalog.Delivery, values catalog.Values,
	parcel outbox.Parcel,
) (outbox.Receipt, error) {
	var err error
	if parcel.Name, err = target.Name(values); err != nil {
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
	for _, h := range target.Webhook.SecretHeaders {
		text, err := readSecret(h.From)
		if err == nil && !catalog.HeaderValue(text) {
			err = errors.New("it has characters that no header has")
		}
		if err != nil {
			return outbox.Receipt{}, fmt.Errorf("read the header %s: %w", h.Name, err)
		}
		headers.Set(h.Name, text)
	}
	hook := outbox.Webhook{
		Sender: d.sender, Method: target.Webhook.Method, Headers: headers, Secrets: secrets,
		Timeout: target.Webhook.Timeout,
	}
	return hook.Deliver(ctx, parcel)
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
func (d *Daemon) contentOf(rec *statefs.Record, send catalog.Send) (outbox.Content, error) {
	switch send {
	case catalog.SendResult:
		return inMemory{bytes.NewReader(rec.Footer)}, nil
	case catalog.SendRecord:
		data, err := rec.Document()
		return inMemory{bytes.NewReader(data)}, err
	case catalog.SendLog, catalog.SendArtifacts:
	}
	f, err := statefs.OpenRegular(d.owner.LogPath(rec.ID))
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

// secretsOf reads the signing secrets of a webhook, at each call: a file may be replaced while the
// daemon runs. Errors never contain them.
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
