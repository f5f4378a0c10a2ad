package browsertest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/internal/browsertest"
)

// What a page complains of is heard: otherwise a test that sees no complaint has seen nothing. And mouse and keyboard
// reach what they are meant for.
func TestPageIsHeardAndReached(t *testing.T) {
	t.Parallel()
	b := browsertest.Start(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Content-Security-Policy", "script-src 'self'")
		fmt.Fprint(w,
			`<script>document.title = 'inline'</script><title>a page</title><input id="in"><button id="late" hidden>Go</button>`)
	}))
	defer server.Close()
	p := b.Page(t)
	p.Open(server.URL)
	p.Wait("document.title === 'a page'")
	p.Eval(`setTimeout(() => {
		const button = document.getElementById('late');
		button.addEventListener('click', (event) => { document.title = 'clicked ' + event.isTrusted; });
		button.hidden = false;
	}, 10), 0`, nil)
	p.Click("document.getElementById('late')")
	p.Wait("document.title === 'clicked true'")
	p.TabTo("at.id === 'in'")
	p.Type("typed")
	if text := p.Text("document.getElementById('in').value"); text != "typed" {
		t.Errorf("typed %q", text)
	}
	p.Eval("console.error('said'), setTimeout(() => { throw new Error('thrown'); }), fetch('/missing').then((answer) => answer.status)", nil)
	for _, want := range []string{
		"security: ", "Content Security Policy", `console error: "said"`,
		"exception: Uncaught Error: thrown", "network: ",
	} {
		heard := func() bool { return strings.Contains(strings.Join(p.Problems(), "\n"), want) }
		for tries := 0; !heard() && tries < 500; tries++ {
			p.Eval("new Promise((resolve) => setTimeout(resolve, 20))", nil) // what it complains of comes by itself
		}
		if !heard() {
			t.Errorf("the page did not complain of %q; it did of %q", want, p.Problems())
		}
	}
}

// A browser that cannot run is as good as none: what it says of it is the reason.
func TestBrowserThatCannotRunIsSkipped(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "chromium"), []byte("#!/bin/sh\necho a library is missing >&2\nexit 127\n"),
		0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	skipped := false
	t.Run("broken", func(t *testing.T) {
		t.Cleanup(func() { skipped = t.Skipped() })
		browsertest.Start(t)
	})
	if !skipped {
		t.Error("the test went on, or failed")
	}
}
