package outbox

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// DeliveryMetadata is the name of the object metadata that holds the ID of the delivery which
// stored the object.
const DeliveryMetadata = "jobdir-delivery"

// Credentials sign the requests to a bucket. Token is "" when there is none.
type Credentials struct{ AccessKey, SecretKey, Token string }

// S3 is a bucket of an S3 server. An object is replaced atomically, after the server has verified
// the SHA-256 of the content.
type S3 struct {
	// Transport makes the connections; see [NewS3Transport].
	Transport http.RoundTripper
	// Endpoint is http:// or https:// and a host.
	Endpoint, Bucket, Region string
	Credentials              Credentials
	// ContentType, StorageClass and Metadata apply to the objects; "" and nil leave them to the
	// server.
	ContentType, StorageClass string
	Metadata                  map[string]string
	// Timeout is how long a request may make no progress.
	Timeout time.Duration
	// PartBytes is the part size for content that is larger than one part; 0 means
	// [DefaultPartBytes].
	PartBytes int64
}

// NewS3Transport makes a transport for S3 targets, with the proxy that the environment names. It is
// safe for concurrent use.
func NewS3Transport() *http.Transport {
	return &http.Transport{
		Proxy:       http.ProxyFromEnvironment,
		DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext, TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: idlePerHost,
		IdleConnTimeout:     30 * time.Second, ExpectContinueTimeout: 2 * time.Second, MaxResponseHeaderBytes: 64 << 10,
		DisableCompression: true,
	}
}

// idlePerHost is how many idle connections to one server are kept for later deliveries: as many as
// can be in use.
const idlePerHost = 1000

// Deliver stores the content under the name of the parcel. Content that is larger than a part is
// sent in parts; a later try continues after the parts that the server has.
func (s *S3) Deliver(ctx context.Context, p Parcel) (Receipt, error) {
	content, err := p.Open()
	if err != nil {
		return Receipt{}, &LocalError{err}
	}
	defer func() { _ = content.Close() }() // it was read
	c, err := s.connect(ctx)
	if err != nil {
		return Receipt{}, err
	}
	defer c.close()
	if content.Size() > s.partBytes(0) {
		return c.upload(p, content)
	}
	return c.put(p, content)
}

// connection makes the requests of one delivery.
type connection struct {
	*S3
	core      minio.Core
	ctx       context.Context //nolint:containedctx // it ends when nothing moves, and is not kept longer than the delivery
	stall     *stall
	transport *stallTransport
}

func (s *S3) connect(ctx context.Context) (*connection, error) {
	at, err := url.Parse(s.Endpoint)
	if err != nil {
		return nil, &RefusedError{"the endpoint is not a URL"}
	}
	ctx, stall := watchStall(ctx, s.Timeout)
	r := &stallTransport{base: s.Transport, stall: stall}
	client, err := minio.New(at.Host, &minio.Options{
		Creds:  credentials.NewStaticV4(s.Credentials.AccessKey, s.Credentials.SecretKey, s.Credentials.Token),
		Secure: at.Scheme == "https", Region: s.Region, Transport: r,
		MaxRetries: 1, // the outbox retries, also after a restart
	})
	if err != nil {
		stall.stop()
		return nil, &RefusedError{fmt.Sprintf("the endpoint %s cannot be used: %v", s.Endpoint, err)}
	}
	return &connection{S3: s, core: minio.Core{Client: client}, ctx: ctx, stall: stall, transport: r}, nil
}

func (c *connection) close() { c.stall.stop() }

// options returns the options with which an object is stored.
func (c *connection) options(p Parcel) minio.PutObjectOptions {
	meta := map[string]string{"x-amz-meta-" + DeliveryMetadata: p.ID}
	for name, value := range c.Metadata {
		meta["x-amz-meta-"+name] = mime.QEncoding.Encode("utf-8", value) // bytes other than ASCII would not arrive
	}
	return minio.PutObjectOptions{
		ContentType: c.ContentType, StorageClass: c.StorageClass, UserMetadata: meta,
		DisableContentSha256: true, // the SHA-256 of the whole is signed instead of each chunk
	}
}

// put stores an object in one request.
func (c *connection) put(p Parcel, content Content) (Receipt, error) {
	sum := sha256.New()
	if err := hashed(sum, whole(content), content.Size()); err != nil {
		return Receipt{}, err
	}
	digest := sum.Sum(nil)
	o := c.options(p)
	o.UserMetadata[checksumHeader] = base64.StdEncoding.EncodeToString(digest)
	info, err := c.core.PutObject(c.ctx, c.Bucket, p.Name, whole(content), content.Size(), "",
		hex.EncodeToString(digest), o)
	if err != nil {
		return Receipt{}, c.explain(p.Name, err)
	}
	return c.receipt(p, content.Size(), digest, info.ETag), nil
}

const checksumHeader = "x-amz-checksum-sha256"

// hashed reads size bytes of content into a hash. A local read error is a LocalError.
func hashed(into io.Writer, r io.Reader, size int64) error {
	n, err := io.Copy(into, r)
	if err == nil && n != size {
		err = fmt.Errorf("it has %d bytes and should have %d: %w", n, size, io.ErrUnexpectedEOF)
	}
	if err != nil {
		return &LocalError{fmt.Errorf("read what is delivered: %w", err)}
	}
	return nil
}

func (c *connection) receipt(p Parcel, size int64, digest []byte, etag string) Receipt {
	path := (&url.URL{Path: "/" + c.Bucket + "/" + p.Name}).EscapedPath()
	return Receipt{
		Location: c.Endpoint + path, Bytes: size, SHA256: hex.EncodeToString(digest), Bucket: c.Bucket,
		Object: p.Name, ETag: strings.Trim(etag, `"`),
	}
}
