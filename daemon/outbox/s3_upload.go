package outbox

import (
	"cmp"
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
	part := cmp.Or(s.PartBytes, DefaultPartBytes)
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
	var parts []minio.CompletePart
	digest, want, err := c.hashParts(content, up.PartBytes, func(digest []byte, content *io.SectionReader) error {
		part := minio.CompletePart{PartNumber: len(parts) + 1, ChecksumSHA256: base64.StdEncoding.EncodeToString(digest)}
		old := there[part.PartNumber]
		if part.ETag = old.ETag; old.Size != content.Size() || old.ChecksumSHA256 != part.ChecksumSHA256 {
			if part.ETag, err = c.part(p, up, part, digest, content); err != nil {
				return err
			}
		}
		parts = append(parts, part)
		return nil
	})
	if err != nil {
		return Receipt{}, err
	}
	info, err := c.core.CompleteMultipartUpload(c.ctx, c.Bucket, p.Name, up.ID, parts, minio.PutObjectOptions{})
	if err != nil {
		return Receipt{}, c.unfinished(p, err)
	}
	if got := info.ChecksumSHA256; got != "" && got != want && got != base64.StdEncoding.EncodeToString(digest) {
		return Receipt{}, fmt.Errorf("%s: the server has put together something else (its SHA-256 is %s, not %s)",
			c.where(p.Name), got, want)
	}
	if err := p.Keep(nil); err != nil {
		return Receipt{}, err
	}
	return c.receipt(p, up.Bytes, digest, info.ETag), nil
}

// hashParts calls send for each part of a content with the SHA-256 of it. It returns the SHA-256 of the
// whole, and that of a multipart object in the notation of servers: the hash of the parts' hashes, and
// the number of parts.
func (c *connection) hashParts(content Content, partBytes int64,
	send func(digest []byte, part *io.SectionReader) error,
) (digest []byte, composite string, err error) {
	sum, sums, parts := sha256.New(), sha256.New(), 0
	for at := int64(0); at < content.Size(); at += partBytes {
		size := min(partBytes, content.Size()-at)
		one := sha256.New()
		if err := hashed(io.MultiWriter(sum, one), io.NewSectionReader(content, at, size), size); err != nil {
			return nil, "", err
		}
		c.stall.moved()
		sums.Write(one.Sum(nil))
		if err := send(one.Sum(nil), io.NewSectionReader(content, at, size)); err != nil {
			return nil, "", err
		}
		parts++
	}
	return sum.Sum(nil), fmt.Sprintf("%s-%d", base64.StdEncoding.EncodeToString(sums.Sum(nil)), parts), nil
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
	content *io.SectionReader,
) (string, error) {
	header := make(http.Header)
	header.Set(checksumHeader, part.ChecksumSHA256)
	sent, err := c.core.PutObjectPart(c.ctx, c.Bucket, up.Name, up.ID, part.PartNumber, content, content.Size(),
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
		return fmt.Errorf("%s: the server does not know the upload any more; it begins anew", c.where(p.Name))
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
	defer c.stall.stop()
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
	digest, want, err := c.hashParts(content, up.PartBytes, func([]byte, *io.SectionReader) error { return nil })
	if err != nil || there.ChecksumSHA256 != want {
		return Receipt{}, false
	}
	return c.receipt(p, up.Bytes, digest, there.ETag), true
}
