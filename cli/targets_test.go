package cli

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/outbox"
)

// Reading a job reports a refused target with its line.
func TestTargetsAreCheckedWhenJobsAreRead(t *testing.T) {
	t.Parallel()
	storage := t.TempDir()
	text := `group: g
name: n
run: [x]
deliver:
  - folder: {path: "` + filepath.Join(storage, "operations") + `"}
  - webhook: {url: "http://10.1.2.3/x"}
  - webhook: {url: "http://localhost:8080/x"}
  - webhook: {url: "https://example.org/x"}
`
	all := catalog.New(catalog.Options{
		Extra:   []catalog.Source{{Name: "n.yaml", YAML: []byte(text)}},
		Targets: outbox.NewShared(storage, []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, 0),
	})
	err := all.Reload()
	if err == nil || all.Get("g", "n") != nil {
		t.Fatalf("the job is read, %v", err)
	}
	for _, want := range []string{
		"n.yaml:5:", "target 1 (folder)", "is part of the storage", "n.yaml:6:",
		"target 2 (webhook)", "--webhook-allow 10.1.2.3",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
	if len(all.Problems()) != 2 {
		t.Errorf("problems %v", all.Problems())
	}
}
