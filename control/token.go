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
	// Name says whose token it is; it stands in the record of what is started with it. Who has a token of the same name has the same
	// idempotency keys.
	Name string
	// Secret is what follows "Bearer " in the header Authorization.
	Secret string
}

// minSecret is the length of the shortest secret that is accepted, in bytes.
const minSecret = 16

// tokens holds names and digests only, so that comparing takes the same time whatever is sent and whoever's token it is.
type tokens []struct {
	name   string
	digest [sha256.Size]byte
}

func newTokens(list []Token) (tokens, error) {
	out := make(tokens, len(list))
	for i, token := range list {
		if len(token.Secret) < minSecret {
			return nil, fmt.Errorf("token %d (%q) has fewer than %d characters; make one with: openssl rand -hex 32", i+1, token.Name, minSecret)
		}
		if strings.ContainsFunc(token.Secret, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return nil, fmt.Errorf("token %d (%q) has a character that no header can carry", i+1, token.Name)
		}
		out[i].name, out[i].digest = token.Name, sha256.Sum256([]byte(token.Secret))
	}
	return out, nil
}

// of returns the name of the token of a request.
func (t tokens) of(r *http.Request) (name string, ok bool) {
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

// creator says who made a request: the header X-Created-By, else the name of the token, else nobody.
func (g *guard) creator(r *http.Request) (string, error) {
	if by := r.Header.Get("X-Created-By"); by != "" {
		if len(by) > maxCreator || printable(by, maxCreator) != by {
			return "", refuse(http.StatusBadRequest, "X-Created-By must be printable and at most %d bytes long", maxCreator)
		}
		return by, nil
	}
	name, _ := g.tokens.of(r)
	return printable(name, maxCreator), nil
}

// scope says whose idempotency keys those of a request are: of everybody who shows a token of this name, or of all who show none.
func (g *guard) scope(r *http.Request) string {
	name, ok := g.tokens.of(r)
	if !ok {
		return ""
	}
	return "token " + printable(name, maxCreator)
}

// shownValue is a value that a client sent, in quotes, as messages name it.
func shownValue(text string) string { return "'" + printable(text, 64) + "'" }

// printable cuts text to most bytes and puts a question mark where a character cannot be shown.
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
