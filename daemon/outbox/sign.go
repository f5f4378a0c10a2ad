package outbox

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"time"
)

// Secret is a signing key of the Standard Webhooks specification.
type Secret []byte

// secretPrefix begins the text of a secret.
const secretPrefix = "whsec_"

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
		encoded, ok := strings.CutPrefix(line, secretPrefix)
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
