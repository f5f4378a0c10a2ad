package outbox

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// SecretPrefix begins the names of environment variables that may hold secrets: commands never get them.
const SecretPrefix = "JOBDIR_SECRET_"

// SecretName is what the name of such a variable must match.
var SecretName = regexp.MustCompile(`^` + SecretPrefix + `[A-Z0-9_]{1,100}$`)

// maxSecret bounds the size of a file that holds a secret.
const maxSecret = 16 << 10

// Source is where a secret is read each time it is needed, because it may be replaced while the daemon runs: a file, or
// an environment variable of the daemon. Errors never contain the secret.
type Source struct{ File, Env string }

// text reads the source and names it.
func (s Source) text() (text, where string, err error) {
	if s.File == "" {
		return os.Getenv(s.Env), "the environment variable " + s.Env, nil
	}
	f, err := os.Open(s.File)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = f.Close() }() // opened for reading
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	return string(data), "the file " + s.File, err
}

// read reads a secret of one line.
func (s Source) read() (string, error) {
	all, where, err := s.text()
	text := strings.TrimSpace(all)
	switch {
	case err != nil:
		return "", err
	case text == "" && s.File == "":
		return "", fmt.Errorf("the environment of the daemon has no %s; start it with that, or write a file into the job", s.Env)
	case text == "":
		return "", fmt.Errorf("%s is empty", where)
	case len(all) > maxSecret || strings.ContainsAny(text, "\r\n\x00"):
		return "", fmt.Errorf("%s has more than one line", where)
	}
	return text, nil
}

// readKeys reads the signing secrets of a webhook, a line each; none if there is no source.
func (s Source) readKeys() ([]Secret, error) {
	if s == (Source{}) {
		return nil, nil
	}
	text, where, err := s.text()
	if err != nil {
		return nil, fmt.Errorf("read the secret: %w", err)
	}
	secrets, err := ParseSecrets(text)
	if err != nil {
		return nil, fmt.Errorf("%s holds no secret: %w", where, err)
	}
	return secrets, nil
}

// Secret is a signing key of the Standard Webhooks specification.
type Secret []byte

// errNoSecret never contains the invalid text, which may be a secret.
var errNoSecret = errors.New("each line must be whsec_ and base64 of 24 to 64 bytes")

// ParseSecrets parses one or more secrets, one per line: the newest first, then older secrets
// for receivers that still need them.
func ParseSecrets(text string) ([]Secret, error) {
	var secrets []Secret
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		encoded, ok := strings.CutPrefix(line, "whsec_")
		key, err := base64.StdEncoding.DecodeString(encoded)
		if !ok || err != nil || len(key) < 24 || len(key) > 64 {
			return nil, errNoSecret
		}
		secrets = append(secrets, key)
	}
	if len(secrets) == 0 {
		return nil, errNoSecret
	}
	return secrets, nil
}

// sign returns the header webhook-signature: one signature for each secret.
func sign(secrets []Secret, id string, at time.Time, body []byte) string {
	signed := make([]string, len(secrets))
	for i, key := range secrets {
		mac := hmac.New(sha256.New, key)
		_, _ = mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + ".")) // a hash does not fail
		_, _ = mac.Write(body)
		signed[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(signed, " ")
}
