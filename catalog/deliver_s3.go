package catalog

import (
	"errors"
	"fmt"
	"mime"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"strings"
	"time"
)

// S3Kind is the kind of a target that is a bucket.
const S3Kind = "s3"

// Defaults of an S3 target.
const (
	DefaultS3Region  = "us-east-1"
	DefaultS3Timeout = time.Minute
	// DefaultAccessKey and DefaultSecretKey are the environment variables of the daemon that hold the credentials.
	DefaultAccessKey = SecretPrefix + "S3_ACCESS_KEY"
	DefaultSecretKey = SecretPrefix + "S3_SECRET_KEY"
)

// S3Target is a bucket of a server that speaks S3.
type S3Target struct {
	// Endpoint is http or https, a host and maybe a port: where the server is, without any path.
	Endpoint, Bucket string
	Key              string // name of the object, as written, with references
	Region           string
	// ContentType "" means that it depends on what is sent; StorageClass "" means the default of the bucket.
	ContentType, StorageClass string
	// Metadata are names without their prefix, and values with references.
	Metadata []EnvVar
	// SessionToken may be of neither a file nor a variable: then there is none.
	AccessKey, SecretKey, SessionToken SecretSource
	// Timeout is how long a request may make no progress, however long it takes in all.
	Timeout time.Duration
}

// SecretSource is where a secret is read each time it is needed: a file, from the root, or an environment variable of
// the daemon.
type SecretSource struct{ File, Env string }

// ArtifactReference is the placeholder for the name of an artifact in a key.
const ArtifactReference = "${artifact}"

// Artifact returns the name at the target for an artifact of an operation. The error explains why it has
// none.
func (d *Delivery) Artifact(v Values, name string) (string, error) {
	parts := strings.Split(d.key(), ArtifactReference)
	for i := range parts { // not the whole: a value may have the same text in it
		var err error
		if parts[i], err = expandKey(parts[i], v); err != nil {
			return "", err
		}
	}
	full := strings.Join(parts, name)
	return full, checkDeliveredName(full)
}

// Type is the media type of what is delivered, name being that of an artifact.
func (t *S3Target) Type(send Send, name string) string {
	if t.ContentType != "" {
		return t.ContentType
	}
	switch send {
	case SendResult, SendRecord:
		return "application/json"
	case SendLog:
		return "text/plain; charset=utf-8"
	case SendArtifacts:
	}
	if known := mime.TypeByExtension(path.Ext(name)); known != "" {
		return known
	}
	return "application/octet-stream"
}

var (
	bucketName   = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	regionName   = regexp.MustCompile(`^[a-zA-Z0-9-]{1,64}$`)
	storageClass = regexp.MustCompile(`^[A-Z0-9_]{1,64}$`)
	mediaType    = regexp.MustCompile(`^[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+-]{1,100}(; ?[\x20-\x7e]{1,200})?$`)
	metadataName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)
)

// checkBucket returns why a name is not a valid bucket name. The rules are those of AWS, which other
// providers follow.
func checkBucket(name string) error {
	_, isAddress := netip.ParseAddr(name)
	switch {
	case len(name) < 3 || len(name) > 63:
		return fmt.Errorf("the bucket %q has %d characters, and a bucket has 3 to 63", clip(name), len(name))
	case !bucketName.MatchString(name):
		return fmt.Errorf("the bucket %q has characters that no bucket has", clip(name))
	case strings.Contains(name, "..") || strings.Contains(name, ".-") || strings.Contains(name, "-."):
		return fmt.Errorf("the bucket %q has a point beside a point or dash", clip(name))
	case isAddress == nil:
		return fmt.Errorf("the bucket %q is an address", clip(name))
	case strings.HasPrefix(name, "xn--"), strings.HasSuffix(name, "-s3alias"), strings.HasSuffix(name, "--x-s3"),
		strings.HasSuffix(name, "--ol-s3"):
		return fmt.Errorf("the bucket %q starts or ends with a reserved text", clip(name))
	}
	return nil
}

// checkEndpoint returns why a text is not the address of a server. The error never contains the text, which
// may include a password.
func checkEndpoint(text string) error {
	if err := checkAddress(text); err != nil {
		return err
	}
	u, err := url.Parse(text)
	if err != nil {
		return err
	}
	if u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.ForceQuery {
		return errors.New("it has a path or query; the bucket has a key of its own")
	}
	return nil
}
