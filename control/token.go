package control

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"strings"
	"unicode"
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

// maxCreator is the length of the longest created_by, in bytes.
const maxCreator = 128

// creator returns who made a request: the name of its token, or without a token the header X-Created-By; "" if unknown.
func (g *guard) creator(r *http.Request) (string, error) {
	if name, ok := g.tokens.lookup(r); ok {
		return printable(name, maxCreator), nil
	}
	if r.Header.Get("Authorization") != "" {
		return "", nil // an unknown token: X-Created-By is not believed either
	}
	by := r.Header.Get("X-Created-By")
	if len(by) > maxCreator || printable(by, maxCreator) != by {
		return "", refuse(http.StatusBadRequest, "X-Created-By must be printable and at most %d bytes long", maxCreator)
	}
	return by, nil
}

// scope returns the namespace of a request's idempotency keys: one per token name, and one for all requests without a
// token.
func (g *guard) scope(r *http.Request) string {
	name, ok := g.tokens.lookup(r)
	if !ok {
		return ""
	}
	return "token " + printable(name, maxCreator)
}

// quoteValue quotes a value that a client sent, for messages.
func quoteValue(text string) string { return "'" + printable(text, 64) + "'" }

// printable cuts text to most bytes and replaces unprintable characters by question marks.
func printable(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.Map(func(c rune) rune {
		if c == unicode.ReplacementChar || !unicode.IsPrint(c) {
			return '?'
		}
		return c
	}, text)
}
