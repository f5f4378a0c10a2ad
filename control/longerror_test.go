package control

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jobdir/jobdir/control/front"
)

// However long the client's input is, an error repeats little of it.
func TestErrorsRepeatLittle(t *testing.T) {
	t.Parallel()
	r := setup(t)
	long := strings.Repeat("ü", 300_000)
	for _, test := range []struct{ path, body string }{
		{"/testrouter/streaming01", `{"title":"` + long + `"}`},
		{"/testrouter/streaming01", `{"files":"` + long + `"}`},
		{"/testrouter/streaming01", `{"files":[` + strings.Repeat("1,", 300_000) + `1]}`},
		{"/testrouter/streaming01", `{"files":` + strings.Repeat("9", 600_000) + `}`},
		{"/testrouter/streaming01", `{"` + long + `":1}`},
		{"/testrouter/streaming01", `{"files":1,"` + long + `":1,"` + long + `":2}`},
		{"/testrouter/streaming01", long},
		{"/media/decode", `{"title":"x","kind":"` + long + `"}`},
		{"/api/v1/operations", `{"job":"` + long + `"}`},
		{"/api/v1/operations", `{"job":"testrouter/` + long + `","params":{}}`},
		{"/api/v1/operations", `{"job":"testrouter/streaming01","` + long + `":1}`},
		{"/api/v1/operations", `{"job":"testrouter/streaming01","key":"` + long + `"}`},
		{"/api/v1/operations", `{"job":"testrouter/streaming01","tags":["` + long + `"]}`},
		{"/api/v1/operations", `{"job":"testrouter/streaming01","after":["` + long + `"]}`},
		{"/api/v1/operations", `[{"job":"testrouter/streaming01","params":{"files":"` + long + `"}}]`},
		{"/api/v1/bulk", `{"action":"` + long + `","filter":{"job":"a"}}`},
		{"/api/v1/bulk", `{"action":"cancel","filter":{"` + long + `":"a"}}`},
		{"/api/v1/bulk", `{"action":"cancel","filter":{"status":"` + long + `"}}`},
		{"/api/v1/lanes/cookie/pause", `{"until":"` + long + `"}`},
		{"/testrouter/control", `{"id":"` + long + `","action":"pause"}`},
		{"/testrouter/control", `{"id":"a","action":"` + long + `"}`},
	} {
		a := r.do("POST", test.path, test.body)
		if a.status < 400 || len(a.body) > 2*front.MaxMessage+4*front.MaxValue || !utf8.ValidString(a.body) {
			t.Errorf("%s with %.60s: %d, %d bytes: %.200s", test.path, test.body, a.status, len(a.body), a.body)
		}
	}
}
