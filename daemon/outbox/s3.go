package outbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// DeliveryMetadata is the name of the object metadata that holds the ID of the delivery which
// stored the object.
const DeliveryMetadata = "jobdir-delivery"

var s3Kind = &Kind{
	Name: "s3",
	Help: "A bucket of a server that speaks S3. The object is replaced as a whole.",
	Keys: []Key{
		{
			Name: "endpoint", Type: TextKey, Required: `write {endpoint: "https://HOST", bucket: ..., key: ...}`,
			Hint: "write https://HOST or http://HOST:PORT", Fixed: "no parameter may choose the server; put it into key",
			Check:  checkEndpoint,
			Schema: `"pattern": "^https?://(\\[[0-9a-fA-F:.]+\\]|[^/?#@:$\\s]+)(:[0-9]{1,4}|:[1-5][0-9]{4}|:6[0-4][0-9]{3}|:65[0-5][0-9]{2})?/?$"`,
			Help:   "Where the server is: http or https, a host and maybe a port. Buckets are in the path, at AWS in the host. The proxy that the environment of the daemon names is used",
		},
		{
			Name: "bucket", Type: TextKey, Required: "write {endpoint: ..., bucket: NAME, key: ...}",
			Hint:  "3 to 63 of a-z, 0-9, . and -, a letter or digit first and last",
			Fixed: "no parameter may choose the bucket; put it into key", Check: checkBucket, Pattern: bucketName,
			Schema: `"not": {"pattern": "\\.\\.|\\.-|-\\.|^[0-9]+\\.[0-9]+\\.[0-9]+\\.[0-9]+$|^xn--|-s3alias$|--x-s3$|--ol-s3$"}`,
			Help:   "The bucket; it has to be there",
		},
		{Name: "key", Type: NameKey, Help: "The name of the object" + nameHelp},
		{
			Name: "region", Type: TextKey, Default: "us-east-1", Pattern: `^[a-zA-Z0-9-]{1,64}$`,
			Hint: "such as us-east-1", Help: "What requests are signed for",
		},
		{
			Name: "content_type", Type: TextKey, Hint: "such as application/json",
			Pattern: `^[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+-]{1,100}(; ?[ -~]{1,200})?$`,
			Help:    "The media type. Default: `application/json`, of a log `text/plain`, of an artifact what its name says",
		},
		{
			Name: "storage_class", Type: TextKey, Pattern: `^[A-Z0-9_]{1,64}$`,
			Hint: "such as STANDARD_IA, as the server calls it", Help: "The storage class, as the server calls it. Default: that of the bucket",
		},
		{
			Name: "metadata", Type: MappingKey, Values: TextKey, Pattern: headerText, MaxBytes: 1000,
			Names: &Names{
				In: "metadata", Pattern: `^[a-z0-9][a-z0-9_-]{0,63}$`,
				Hint: "a-z, 0-9, _ and -, without x-amz-meta-", Taken: []string{DeliveryMetadata},
				Schema: `"not": {"const": "` + DeliveryMetadata + `"}`,
			},
			Help: "Further names, without x-amz-meta-, and values, with `${id}` or `${params.X}`, encoded after RFC 2047 when they are not ASCII",
		},
		credentialEnv("access_key", "the access key", SecretPrefix+"S3_ACCESS_KEY"), credentialFile("access_key", "the access key"),
		credentialEnv("secret_key", "the secret key", SecretPrefix+"S3_SECRET_KEY"), credentialFile("secret_key", "the secret key"),
		credentialEnv("session_token", "the session token", ""), credentialFile("session_token", "the session token"),
		{
			Name: "timeout", Type: DurationKey, Default: "1m", Min: time.Second, Max: time.Hour,
			Hint: "it is how long nothing may move, at least 1s",
			Help: "How long nothing may move, 1s to 1h; a slow line may take as long as it needs",
		},
	},
	Target: newS3,
}

func credentialEnv(name, what, preset string) Key {
	return Key{
		Name: name + "_env", Type: SecretEnvKey, Default: preset, Either: "leave one of them out",
		Help: "The environment variable of the daemon with " + what + "; it begins with `" + SecretPrefix + "`",
	}
}

func credentialFile(name, what string) Key {
	return Key{
		Name: name + "_file", Type: SecretFileKey, Hint: "/etc/jobdir/s3.key", Either: "leave one of them out",
		Help: "A file with " + what + ", from the root, read at each try",
	}
}

// S3 is a bucket of an S3 server. An object is replaced atomically, after the server has verified
// the SHA-256 of the content.
type S3 struct {
	// Transport makes the connections; see [NewS3Transport].
	Transport http.RoundTripper
	// Endpoint is http:// or https:// and a host.
	Endpoint, Bucket, Region string
	// AccessKey, SecretKey and SessionToken are the credentials; the zero Source means no token.
	AccessKey, SecretKey, SessionToken Source
	// ContentType, StorageClass and Metadata apply to the objects; "" means the type of the parcel, and
	// the storage class of the bucket. The values of Metadata may have references.
	ContentType, StorageClass string
	Metadata                  []Pair
	// Timeout is how long a request may make no progress.
	Timeout time.Duration
	// PartBytes is the part size for content that is larger than one part; 0 means
	// [DefaultPartBytes].
	PartBytes int64
}

func newS3(s Settings, shared *Shared) Target {
	return &S3{
		Transport: shared.s3, Endpoint: strings.TrimSuffix(s.Text("endpoint"), "/"), Bucket: s.Text("bucket"),
		Region: s.Text("region"), AccessKey: s.Source("access_key"), SecretKey: s.Source("secret_key"),
		SessionToken: s.Source("session_token"), ContentType: s.Text("content_type"),
		StorageClass: s.Text("storage_class"), Metadata: s.Pairs("metadata"), Timeout: s.Duration("timeout"),
		PartBytes: shared.partBytes,
	}
}

// Place implements Target.
func (s *S3) Place() Place {
	at := s.Endpoint + "/" + s.Bucket
	return Place{Label: at, Location: at + "/", Bucket: s.Bucket}
}

// Check implements Target.
func (*S3) Check() error { return nil }

const bucketName Expression = `^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`

// checkBucket returns why a name is not a valid bucket name. The rules are those of AWS, which other
// providers follow.
func checkBucket(name string) error {
	_, isAddress := netip.ParseAddr(name)
	shown := printable(name, 80)
	switch {
	case len(name) < 3 || len(name) > 63:
		return fmt.Errorf("the bucket %q has %d characters, and a bucket has 3 to 63", shown, len(name))
	case !bucketName.MatchString(name):
		return fmt.Errorf("the bucket %q has characters that no bucket has", shown)
	case strings.Contains(name, "..") || strings.Contains(name, ".-") || strings.Contains(name, "-."):
		return fmt.Errorf("the bucket %q has a point beside a point or dash", shown)
	case isAddress == nil:
		return fmt.Errorf("the bucket %q is an address", shown)
	case strings.HasPrefix(name, "xn--"), strings.HasSuffix(name, "-s3alias"), strings.HasSuffix(name, "--x-s3"),
		strings.HasSuffix(name, "--ol-s3"):
		return fmt.Errorf("the bucket %q starts or ends with a reserved text", shown)
	}
	return nil
}

// checkEndpoint returns why a text is not the address of a server. The error never contains the text, which
// may include a password.
func checkEndpoint(text string) error {
	err := CheckAddress(text)
	if err == nil {
		u, _ := url.Parse(text) // it was just parsed
		if u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.ForceQuery {
			err = errors.New("it has a path or query; the bucket has a key of its own")
		}
	}
	if err != nil {
		return fmt.Errorf("endpoint cannot be used: %w", err)
	}
	return nil
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
	defer c.stall.stop()
	if content.Size() > s.partBytes(0) {
		return c.upload(p, content)
	}
	return c.put(p, content)
}

// connection makes the requests of one delivery.
type connection struct {
	*S3
	secrets   [3]string // the access key, the secret key and the session token, "" if there is none
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
	var secrets [3]string
	for i, from := range []Source{s.AccessKey, s.SecretKey, s.SessionToken} {
		if from == (Source{}) {
			continue
		}
		if secrets[i], err = from.read(); err != nil {
			what := []string{"access key", "secret key", "session token"}[i]
			return nil, fmt.Errorf("read the %s of bucket %s at %s: %w", what, s.Bucket, s.Endpoint, err)
		}
	}
	ctx, stall := watchStall(ctx, s.Timeout)
	r := &stallTransport{base: s.Transport, stall: stall}
	client, err := minio.New(at.Host, &minio.Options{
		Creds:  credentials.NewStaticV4(secrets[0], secrets[1], secrets[2]),
		Secure: at.Scheme == "https", Region: s.Region, Transport: r,
		MaxRetries: 1, // the outbox retries, also after a restart
	})
	if err != nil {
		stall.stop()
		return nil, &RefusedError{fmt.Sprintf("the endpoint %s cannot be used: %v", s.Endpoint, err)}
	}
	return &connection{S3: s, secrets: secrets, core: minio.Core{Client: client}, ctx: ctx, stall: stall, transport: r}, nil
}

// options returns the options with which an object is stored.
func (c *connection) options(p Parcel) minio.PutObjectOptions {
	meta := map[string]string{"x-amz-meta-" + DeliveryMetadata: p.ID}
	for _, m := range c.Metadata {
		if p.Expand != nil {
			m.Value = p.Expand(m.Value)
		}
		meta["x-amz-meta-"+m.Name] = mime.QEncoding.Encode("utf-8", m.Value) // bytes other than ASCII would not arrive
	}
	return minio.PutObjectOptions{
		ContentType: cmp.Or(c.ContentType, p.Type), StorageClass: c.StorageClass, UserMetadata: meta,
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
