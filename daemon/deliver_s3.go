package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/outbox"
	"github.com/jobdir/jobdir/statefs"
)

// maxSecret bounds the size of a file that holds a key.
const maxSecret = 16 << 10

// bucketOf returns the bucket of a target. It reads the credentials at each call, because a file
// may be replaced while the daemon runs. Errors never contain them. name is the artifact, if one is
// sent.
func (d *Daemon) bucketOf(target *catalog.Delivery, values catalog.Values, name string) (*outbox.S3, error) {
	t := target.S3
	bucket := &outbox.S3{
		Transport: d.s3Transport, Endpoint: t.Endpoint, Bucket: t.Bucket, Region: t.Region,
		ContentType:  t.Type(target.Send, name),
		StorageClass: t.StorageClass, Metadata: make(map[string]string), Timeout: t.Timeout, PartBytes: d.config.S3PartBytes,
	}
	for _, m := range t.Metadata {
		bucket.Metadata[m.Name] = catalog.Expand(m.Value, values)
	}
	for _, s := range []struct {
		what  string
		from  catalog.SecretSource
		into  *string
		needs bool
	}{
		{"access key", t.AccessKey, &bucket.Credentials.AccessKey, true},
		{"secret key", t.SecretKey, &bucket.Credentials.SecretKey, true},
		{"session token", t.SessionToken, &bucket.Credentials.Token, false},
	} {
		if !s.needs && s.from == (catalog.SecretSource{}) {
			continue
		}
		text, err := readSecret(s.from)
		if err != nil {
			return nil, fmt.Errorf("read the %s of bucket %s at %s: %w", s.what, t.Bucket, t.Endpoint, err)
		}
		*s.into = text
	}
	return bucket, nil
}

// abortTimeout bounds the time for aborting an upload: the client of a drop request may wait for
// it.
const abortTimeout = 10 * time.Second

// readSecret reads a secret of one line.
func readSecret(from catalog.SecretSource) (string, error) {
	if from.File == "" {
		text := os.Getenv(from.Env)
		if text == "" {
			return "", fmt.Errorf("the environment of the daemon has no %s; start it with that, or write a file into the job",
				from.Env)
		}
		return text, nil
	}
	f, err := os.Open(from.File)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // opened for reading
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	text := strings.TrimSpace(string(data))
	switch {
	case err != nil:
		return "", err
	case text == "":
		return "", fmt.Errorf("the file %s is empty", from.File)
	case len(data) > maxSecret || strings.ContainsAny(text, "\r\n\x00"):
		return "", fmt.Errorf("the file %s has more than one line", from.File)
	}
	return text, nil
}

// saveDeliveryProgress writes the progress of a delivery into its entry, if the entry still exists.
// It does not recreate a removed entry.
func (d *Daemon) saveDeliveryProgress(name statefs.EntryName, entry *statefs.OutboxEntry) error {
	err := d.owner.RewriteEntry(name, entry)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &outbox.LocalError{Err: errors.New("somebody took its entry out of the outbox")}
	case err != nil:
		return &outbox.LocalError{Err: err}
	}
	return nil
}

// abortUpload tells the bucket to abort the unfinished upload of an entry. If the bucket cannot be
// reached, the entry still names the upload.
func (d *Daemon) abortUpload(ctx context.Context, rec *statefs.Record, name statefs.EntryName,
	entry *statefs.OutboxEntry,
) {
	def, params, err := d.definition(rec)
	if err != nil || entry.Upload == nil || name.Place > len(def.Deliver) || def.Deliver[name.Place-1].S3 == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	bucket, err := d.bucketOf(def.Deliver[name.Place-1], catalog.Values{Params: params, ID: rec.ID.String()}, "")
	if err == nil {
		err = bucket.Abort(ctx, entry.Upload)
	}
	if err != nil {
		d.logger.Warn("what was sent of a delivery stays on the server", "entry", name, "upload", entry.Upload.ID, "object",
			entry.Upload.Name, "error", err)
		return
	}
	entry.Upload = nil
}
