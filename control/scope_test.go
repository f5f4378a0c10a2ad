package control

import (
	"net/http"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/control/front"
)

// The same idempotency key with another token is another key: no client gets, or learns of, operations of another
// token.
func TestIdempotencyKeysAreOfTheirToken(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *Config) {
		c.Tokens = []front.Token{
			{Name: "alice", Secret: "alices-secret-123"},
			{Name: "bob", Secret: "bobs-secret-12345"},
			{Name: "alice", Secret: "alices-new-secret"},
		}
	})
	const (
		key   = "Idempotency-Key: 1"
		alice = "Authorization: Bearer alices-secret-123"
		anew  = "Authorization: Bearer alices-new-secret"
		bob   = "Authorization: Bearer bobs-secret-12345"
	)
	submit := func(body, token string, headers ...string) (string, int) {
		t.Helper()
		a := r.do("POST", "/testrouter/streaming01", body, append(headers, key, token)...)
		return a.header.Get(operationHeader), a.status
	}
	first, status := submit(`{"files":2}`, alice)
	if status != http.StatusCreated {
		t.Fatalf("alice: %d", status)
	}
	r.take(first).start().finish()
	// Bob learns nothing of it, not even that the key is used, whatever name he gives.
	second, status := submit(`{"files":3}`, bob, "X-Created-By: alice")
	if status != http.StatusCreated || second == first {
		t.Errorf("bob with other parameters: %d, %s", status, second)
	}
	for _, token := range []string{alice, anew} { // the secret may change
		if id, status := submit(`{"files":2}`, token); status != http.StatusOK || id != first {
			t.Errorf("alice again: %d, %s, want %s", status, id, first)
		}
	}
	if id, status := submit(`{"files":3}`, bob); status != http.StatusOK || id != second {
		t.Errorf("bob again: %d, %s, want %s", status, id, second)
	}
	a := r.do("POST", "/testrouter/streaming01", `{"files":4}`, key, alice)
	r.problem(a, http.StatusUnprocessableEntity,
		"The idempotency key '1' names operation '"+first+"', which has another job or other parameters: use a new key")
	entry := `{"job":"testrouter/streaming01","params":{"files":2},"idempotency_key":"1"}`
	if a := r.do("POST", "/api/v1/operations", entry, alice); a.status != http.StatusOK ||
		!strings.Contains(a.body, first) {
		t.Errorf("the same as an entry: %d %s", a.status, a.body)
	}
	if a := r.do("POST", "/api/v1/operations", "["+strings.ReplaceAll(entry, ":2}", ":3}")+"]",
		bob); a.status != http.StatusOK || !strings.Contains(a.body, second) {
		t.Errorf("the same as a list: %d %s", a.status, a.body)
	}
}
