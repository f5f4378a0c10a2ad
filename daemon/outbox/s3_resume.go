package outbox

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"

	"github.com/minio/minio-go/v7"

	"github.com/jobdir/jobdir/statefs"
)

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
