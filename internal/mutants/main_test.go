package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The list must follow the code even if mutants is rarely run: this test finds a text that has changed,
// without the long run.
func TestEachMutantIsFoundOnce(t *testing.T) {
	t.Parallel()
	for _, m := range mutants {
		data, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(m.file)))
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		if n := strings.Count(string(data), m.old); n != 1 {
			t.Errorf("%s: %s has its text %d times: %q", m.name, m.file, n, m.old)
		}
		if _, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(m.pkg))); err != nil || m.old == m.new {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}
