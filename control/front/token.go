package front

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"strings"
)

// Token is a secret that lets its holder use the daemon over the network.
type Token struct {
	// Name names the owner of the token; it is recorded in operations started with it. Tokens with the same name share
	// their idempotency keys.
	Name string
	// Secret is the value after "Bearer " in the Authorization header.
	Secret string
}

// minSecret is the minimum length of a secret, in bytes.
const minSecret = 16

// tokens holds only names and digests, so that a comparison takes the same time for any input and any token.
type tokens []struct {
	name   string
	digest [sha256.Size]byte
}

func newTokens(list []Token) (tokens, error) {
	out := make(tokens, len(list))
	for i, token := range list {
		if len(token.Secret) < minSecret {
			return nil, fmt.Errorf("token %d (%q) has fewer than %d characters; make one with: openssl rand -hex 32", i+1,
				token.Name, minSecret)
		}
		if strings.ContainsFunc(token.Secret, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return nil, fmt.Errorf("token %d (%q) has a character that no header can carry", i+1, token.Name)
		}
		out[i].name, out[i].digest = token.Name, sha256.Sum256([]byte(token.Secret))
	}
	return out, nil
}

// lookup returns the name of the token of a request.
func (t tokens) lookup(r *http.Request) (name string, ok bool) {
	headers := r.Header.Values("Authorization")
	if len(headers) != 1 {
		return "", false
	}
	scheme, secret, _ := strings.Cut(headers[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	digest := sha256.Sum256([]byte(strings.TrimSpace(secret)))
	for i := range t {
		if subtle.ConstantTimeCompare(t[i].digest[:], digest[:]) == 1 {
			name, ok = t[i].name, true
		}
	}
	return name, ok
}
