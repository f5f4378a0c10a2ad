package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
)

// A name that is too long for the ending of an answer is shortened, before the daemon starts and
// while it runs.
func TestLongNamesOfSubmissionsAreAnswered(t *testing.T) {
	t.Parallel()
	b := setupInbox(t)
	short := func(name, kept string) string {
		sum := sha256.Sum256([]byte(name))
		return kept + "~" + hex.EncodeToString(sum[:8])
	}
	before, longest, cut := strings.Repeat("a", 201), strings.Repeat("b", 250), "x"+strings.Repeat("ü", 124)
	b.drop(before, `{"job":"test/wait"}`)
	b.begin()
	b.accepted(short(before, before[:150]))
	b.drop(longest, `{"job":"test/nothing"}`)
	if accepted, text := b.answer(short(longest, longest[:150])); accepted || !strings.Contains(text, "nothing") {
		t.Errorf("accepted: %t, %s", accepted, text)
	}
	b.drop(cut, `{"job":"test/wait"}`)
	b.accepted(short(cut, "x"+strings.Repeat("ü", 74)))
}
