package cli_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/internal/browsertest"
)

// linksAreConfirmed opens links as a mail or a chat has them: another site redirects the browser to an address that
// starts or controls something. The name jobs.test is one for which a browser sends no Sec-Fetch header over plain
// http.
func linksAreConfirmed(t *testing.T, b *browsertest.Browser) {
	r := newPageRig(t, "")
	running := r.submit("forever", "{}")
	_, port, _ := strings.Cut(r.address, ":")
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		to := q.URL.Query().Get("to")
		switch q.URL.Path {
		case "/redirect":
			http.Redirect(w, q, to, http.StatusFound)
		case "/frame":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, `<iframe src="%s" onload="document.title = 'loaded'"></iframe>`, to)
		case "/image":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, `<img src="%s" onerror="document.title = 'loaded'">`, to)
		case "/form":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, `<form method="post" action="%s"><input name="confirmation" value="1.2.3"></form>`, to)
			fmt.Fprint(w, `<script>document.forms[0].submit()</script>`)
		}
	}))
	t.Cleanup(evil.Close)
	_, evilPort, _ := strings.Cut(strings.TrimPrefix(evil.URL, "http://"), ":")
	known := r.operations()
	const button = "document.querySelector('button')"
	click := func(p *browsertest.Page) {
		t.Helper()
		p.Wait(button)
		p.Eval("Promise.all(document.getAnimations().map((animation) => animation.finished))", nil) // the button comes late
		p.TabTo("at.tagName === 'BUTTON'")
		p.Press("Enter")
	}
	for _, host := range []string{"127.0.0.1", "localhost", "jobs.test"} {
		start := "http://" + host + ":" + port + "/g/held?title=" + host
		cancel := "http://" + host + ":" + port + "/g/control?action=cancel%26id=" + running
		from := func(p *browsertest.Page, how, to string) {
			t.Helper()
			p.Open("http://evil.test:" + evilPort + how + "?to=" + to)
		}
		p := b.Page(t)
		from(p, "/redirect", cancel)
		p.Wait(says("document.body", running) + " && " + button)
		from(p, "/redirect", start)
		p.Wait(says("document.body", "Nothing has happened yet") + " && " + button)
		// The other site may not start something with an image or a form, or show the page in a frame.
		framed := b.Page(t)
		from(framed, "/image", start)
		framed.Wait("document.title === 'loaded'")
		from(framed, "/form", start)
		framed.Wait(says("document.body", "A page of another site may not do this"))
		from(framed, "/frame", start)
		framed.Wait("document.title === 'loaded'")
		if problems := strings.Join(framed.Problems(), "\n"); !strings.Contains(problems, "frame") {
			t.Errorf("%s: the page was framed; the browser complains: %s", host, problems)
		}
		if now := r.operations(); !slices.Equal(now, known) {
			t.Fatalf("%s: a link changed the operations from %q to %q", host, known, now)
		}

		// The person clicks, and sees the stream.
		click(p)
		p.Wait(says("document.body", "begun "+host))
		now := r.operations()
		if len(now) != len(known)+1 {
			t.Fatalf("%s: the button changed the operations from %q to %q", host, known, now)
		}
		known = now

		// A script of the page itself needs no confirmation.
		own := b.Page(t)
		own.Open("http://" + host + ":" + port + "/ui/")
		own.Wait(is(running, "running"))
		if host != "jobs.test" {
			var success bool
			own.Eval(fmt.Sprintf("fetch('/g/control?action=pause&id=%s').then((a) => a.json()).then((a) => a.success)", running),
				&success)
			if !success {
				t.Errorf("%s: a script of the page could not pause", host)
			}
			own.Wait(is(running, "paused"))
			own.Eval(fmt.Sprintf("fetch('/g/control?action=resume&id=%s')", running), nil)
			own.Wait(is(running, "running"))
		}
	}
	p := b.Page(t)
	p.Open("http://127.0.0.1:" + port + "/g/control?action=cancel&id=" + running)
	click(p)
	p.Wait(says("document.body", "Cancel requested"))
}

// operations lists the markers of the live operations without their states.
func (r *pageRig) operations() []string {
	r.t.Helper()
	entries, err := os.ReadDir(r.storage + "/jobs")
	if err != nil {
		r.t.Fatal(err)
	}
	var ids []string
	for _, entry := range entries {
		id, _, _ := strings.Cut(entry.Name(), ".")
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
