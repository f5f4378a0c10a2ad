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
	"github.com/jobdir/jobdir/outbox"
	"github.com/jobdir/jobdir/statefs"
)

// maxSecret bounds what is read of a file that holds a key.
const maxSecret = 16 << 10

// bucketOf makes the target that a job names; its credentials are read each time, because a file may be replaced while the daemon runs. No error has
// any of them. name is that of an artifact.
func (d *Daemon) bucketOf(target *catalog.Delivery, values catalog.Values, name string) (*outbox.S3, error) {
	t := target.S3
	bucket := &outbox.S3{
		Transport: d.buckets, Endpoint: t.Endpoint, Bucket: t.Bucket, Region: t.Region, ContentType: t.Type(target.Send, name),
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

// abandonLimit is how long a server may take to forget an upload: somebody may wait for the answer to a drop.
const abandonLimit = 10 * time.Second

// readSecret reads a text of one line.
func readSecret(from catalog.SecretSource) (string, error) {
	if from.File == "" {
		text := os.Getenv(from.Env)
		if text == "" {
			return "", fmt.Errorf("the environment of the daemon has no %s; start it with that, or write a file into the job", from.Env)
		}
		return text, nil
	}
	f, err := os.Open(from.File)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was read
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

// progress writes down how far a delivery is, in an entry that is still there: one that somebody removed does not come back.
func (d *Daemon) progress(name statefs.EntryName, entry *statefs.OutboxEntry) error {
	err := d.owner.RewriteEntry(name, entry)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &outbox.OwnError{Err: errors.New("somebody took its entry out of the outbox")}
	case err != nil:
		return &outbox.OwnError{Err: err}
	}
	return nil
}

// abandon has a bucket forget what was sent of something that will not be finished. When it cannot be reached the entry goes on naming it.
func (d *Daemon) abandon(ctx context.Context, rec *statefs.Record, name statefs.EntryName, entry *statefs.OutboxEntry) {
	def, params, err := d.definition(rec)
	if err != nil || entry.Upload == nil || name.Place > len(def.Deliver) || def.Deliver[name.Place-1].S3 == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonLimit)
	defer cancel()
	bucket, err := d.bucketOf(def.Deliver[name.Place-1], catalog.Values{Params: params, ID: rec.ID.String()}, "")
	if err == nil {
		err = bucket.Abort(ctx, entry.Upload)
	}
	if err != nil {
		d.logger.Warn("what was sent of a delivery stays on the server", "entry", name, "upload", entry.Upload.ID, "object", entry.Upload.Name, "error", err)
		return
	}
	entry.Upload = nil
}
