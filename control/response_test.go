package control

import (
	"strings"
	"testing"
)

// An unsatisfiable Range is refused with a problem that names the size, without any bytes of the file.
func TestUnsatisfiableRangesAreProblems(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.submit().start()
	w.write("0123456789")
	log := w.path("/log")
	a := r.get(log, "Range: bytes=10-")
	r.problem(a, 416, "The Range begins behind the end: there are 10 bytes")
	for name, want := range map[string]string{
		"Content-Range": "bytes */10", "Content-Disposition": "",
		"Cache-Control": "no-store",
	} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	r.problem(r.get(log, "Range: lines=1-2"), 416, "The Range cannot be read: write it as in bytes=0-99")
	for asked, want := range map[string]string{
		"bytes=8-": "89", "bytes=2-3": "23", "bytes=-1": "9",
		"bytes=5-99": "56789",
	} {
		if a := r.get(log, "Range: "+asked); a.status != 206 || a.body != want {
			t.Errorf("%s: %d %q", asked, a.status, a.body)
		}
	}
	if a := r.get(log, "Range: bytes=0-0,2-2"); a.status != 206 || !strings.HasPrefix(a.header.Get("Content-Type"),
		"multipart/byteranges") {
		t.Errorf("two ranges: %d %v", a.status, a.header)
	}
}
