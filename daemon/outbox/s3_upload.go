package outbox

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"

	"github.com/minio/minio-go/v7"

	"github.com/jobdir/jobdir/statefs"
)

const (
	// DefaultPartBytes is the default size of a part: the most that a broken connection wastes. No
	// part is held in memory.
	DefaultPartBytes = 16 << 20
	// maxParts is the most parts that a server accepts.
	maxParts = 10_000
)

// partBytes returns the part size for content of size bytes. It doubles the configured size until
// maxParts suffice.
func (s *S3) partBytes(size int64) int64 {
	part := s.PartBytes
	if part <= 0 {
		part = DefaultPartBytes
	}
	for part*maxParts < size {
		part *= 2
	}
	return part
}

// upload stores an object in parts.
func (c *connection) upload(p Parcel, content Content) (Receipt, error) {
	up, there, err := c.resume(p, content.Size())
	if err != nil {
		return Receipt{}, err
	}
	if up == nil && p.Upload != nil {
		if receipt, is := c.complete(p, content); is {
			return receipt, p.Keep(nil)
		}
	}
	if up == nil {
		if up, err = c.begin(p, content.Size()); err != nil {
			return Receipt{}, err
		}
	}
	sum, sums := sha256.New(), sha256.New()
	var parts []minio.CompletePart
	for at := int64(0); at < up.Bytes; at += up.PartBytes {
		size := min(up.PartBytes, up.Bytes-at)
		one := sha256.New()
		if err := hashed(io.MultiWriter(sum, one), io.NewSectionReader(content, at, size), size); err != nil {
			return Receipt{}, err
		}
		c.stall.moved()
		digest := one.Sum(nil)
		sums.Write(digest)
		part := minio.CompletePart{PartNumber: len(parts) + 1, ChecksumSHA256: base64.StdEncoding.EncodeToString(digest)}
		if old, ok := there[part.PartNumber]; ok && old.Size == size && old.ChecksumSHA256 == part.ChecksumSHA256 {
			part.ETag = old.ETag
		} else if part.ETag, err = c.part(p, up, part, digest, io.NewSectionReader(content, at, size)); err != nil {
			return Receipt{}, err
		}
		parts = append(parts, part)
	}
	info, err := c.core.CompleteMultipartUpload(c.ctx, c.Bucket, p.Name, up.ID, parts, minio.PutObjectOptions{})
	if err != nil {
		return Receipt{}, c.unfinished(p, err)
	}
	want := composite(sums.Sum(nil), len(parts))
	if got := info.ChecksumSHA256; got != "" && got != want && got != base64.StdEncoding.EncodeToString(sum.Sum(nil)) {
		return Receipt{},
			fmt.Errorf("put %q into bucket %s at %s: the server has put together something else (its SHA-256 is %s, not %s)",
				p.Name, c.Bucket, c.Endpoint, got, want)
	}
	if err := p.Keep(nil); err != nil {
		return Receipt{}, err
	}
	return c.receipt(p, up.Bytes, sum.Sum(nil), info.ETag), nil
}

// begin creates an upload on the server. The upload is persisted before any part is sent.
func (c *connection) begin(p Parcel, size int64) (*statefs.Upload, error) {
	o := c.options(p)
	o.UserMetadata["x-amz-checksum-algorithm"] = "SHA256"
	id, err := c.core.NewMultipartUpload(c.ctx, c.Bucket, p.Name, o)
	if err != nil {
		return nil, c.explain(p.Name, err)
	}
	up := &statefs.Upload{Name: p.Name, ID: id, Bytes: size, PartBytes: c.partBytes(size)}
	if err := p.Keep(up); err != nil {
		_ = c.core.AbortMultipartUpload(c.ctx, c.Bucket, up.Name, up.ID) // no later try would find it
		return nil, err
	}
	return up, nil
}

// part sends one part and returns its ETag.
func (c *connection) part(p Parcel, up *statefs.Upload, part minio.CompletePart, digest []byte,
	content io.Reader,
) (string, error) {
	header := make(http.Header)
	header.Set(checksumHeader, part.ChecksumSHA256)
	size := min(up.PartBytes, up.Bytes-int64(part.PartNumber-1)*up.PartBytes)
	sent, err := c.core.PutObjectPart(c.ctx, c.Bucket, up.Name, up.ID, part.PartNumber, content, size,
		minio.PutObjectPartOptions{
			Sha256Hex: hex.EncodeToString(digest), CustomHeader: header, DisableContentSha256: true,
		})
	if err != nil {
		return "", c.unfinished(p, err)
	}
	return sent.ETag, nil
}

// unfinished describes why an upload could not continue. An upload that the server no longer knows
// starts over with the next try.
func (c *connection) unfinished(p Parcel, err error) error {
	if isCode(err, minio.NoSuchUpload) {
		if err := p.Keep(nil); err != nil {
			return err
		}
		return fmt.Errorf("put %q into bucket %s at %s: the server does not know the upload any more; it begins anew", p.Name,
			c.Bucket, c.Endpoint)
	}
	return c.explain(p.Name, err)
}

// forget removes the parts of an upload from the server.
func (c *connection) forget(up *statefs.Upload, keep func(*statefs.Upload) error) error {
	err := c.core.AbortMultipartUpload(c.ctx, c.Bucket, up.Name, up.ID)
	if err != nil && !isCode(err, minio.NoSuchUpload) {
		return c.explain(up.Name, err)
	}
	return keep(nil)
}

func isCode(err error, code string) bool {
	return err != nil && minio.ToErrorResponse(err).Code == code
}

// Abort makes the server discard an upload. An upload that it does not know is not an error.
func (s *S3) Abort(ctx context.Context, up *statefs.Upload) error {
	c, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	return c.forget(up, func(*statefs.Upload) error { return nil })
}

// partsListed is how many parts one request lists.
const partsListed = 1000

// resume finds the parts that an earlier try has sent. It returns nil when there was none, or when
// the server no longer knows the upload.
func (c *connection) resume(p Parcel, size int64) (up *statefs.Upload, there map[int]minio.ObjectPart, err error) {
	if up = p.Upload; up == nil {
		return nil, nil, nil
	}
	if up.Name != p.Name || up.Bytes != size || up.PartBytes <= 0 || (size-1)/up.PartBytes >= maxParts {
		return nil, nil, c.forget(up, p.Keep) // the content to deliver has changed
	}
	there = make(map[int]minio.ObjectPart)
	for marker := 0; ; {
		list, err := c.core.ListObjectParts(c.ctx, c.Bucket, up.Name, up.ID, marker, partsListed)
		if isCode(err, minio.NoSuchUpload) {
			return nil, nil, nil
		}
		if err != nil {
			return nil, nil, c.explain(p.Name, err)
		}
		for _, part := range list.ObjectParts {
			there[part.PartNumber] = part
		}
		if !list.IsTruncated || list.NextPartNumberMarker <= marker {
			return up, there, nil
		}
		marker = list.NextPartNumberMarker
	}
}

// complete reports whether the server no longer knows an upload because it has already assembled
// the object: then its answer, or our record of it, was lost. When this cannot be verified, the
// object is sent again.
func (c *connection) complete(p Parcel, content Content) (Receipt, bool) {
	up := p.Upload
	if up.Name != p.Name || up.Bytes != content.Size() || up.PartBytes <= 0 {
		return Receipt{}, false
	}
	there, err := c.core.StatObject(c.ctx, c.Bucket, p.Name, minio.StatObjectOptions{Checksum: true})
	if err != nil || there.Size != up.Bytes || there.UserMetadata[http.CanonicalHeaderKey(DeliveryMetadata)] != p.ID {
		return Receipt{}, false
	}
	sum, sums := sha256.New(), sha256.New()
	count := 0
	for at := int64(0); at < up.Bytes; at += up.PartBytes {
		one := sha256.New()
		size := min(up.PartBytes, up.Bytes-at)
		if hashed(io.MultiWriter(sum, one), io.NewSectionReader(content, at, size), size) != nil {
			return Receipt{}, false
		}
		c.stall.moved()
		sums.Write(one.Sum(nil))
		count++
	}
	if there.ChecksumSHA256 != composite(sums.Sum(nil), count) {
		return Receipt{}, false
	}
	return c.receipt(p, up.Bytes, sum.Sum(nil), there.ETag), true
}

// composite returns the SHA-256 of a multipart object in the notation of servers: the hash of the
// parts' hashes, and the number of parts.
func composite(sum []byte, parts int) string {
	return fmt.Sprintf("%s-%d", base64.StdEncoding.EncodeToString(sum), parts)
}
