package control

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// The three expressions of the stream documentation.
var (
	startExpression = regexp.MustCompile(`(?s)<start_json>\n(.*?)\n</start_json>`)
	logExpression   = regexp.MustCompile(`(?s)<log>\n(.*?)(?:</log>|\z)`)
	endExpression   = regexp.MustCompile(`(?s)<end_json>\n(.*?)\n</end_json>`)
)

func TestClientOfTheDocument(t *testing.T) {
	t.Parallel()
	r := setup(t)
	resp := r.open("GET", "/testrouter/streaming01?files=2", "")
	defer resp.Body.Close()
	w := r.take(resp.Header.Get(operationHeader))
	next := lineReader(resp.Body)
	var buffer strings.Builder
	read := func(lines int) {
		for range lines {
			buffer.WriteString(next() + "\n")
		}
	}
	// The header is sent before the work begins.
	read(4)
	header := startExpression.FindStringSubmatch(buffer.String())
	if header == nil || !strings.Contains(header[1], w.id.String()) || !strings.Contains(header[1], `"total": 2`) {
		t.Fatalf("header in %q", buffer.String())
	}
	w.start()
	lines := []string{
		"[ 1 / 2 ] Processing file 'a'...", "  OK.", "it says </log> and <end_json>",
		"[ 2 / 2 ] Processing file 'b'...",
	}
	for i, line := range lines {
		w.write(line + "\n")
		read(1)
		shown := logExpression.FindStringSubmatch(buffer.String())
		if shown == nil || strings.Count(shown[1], "\n") != i+1 || endExpression.MatchString(buffer.String()) {
			t.Fatalf("after %d lines the log is %q", i+1, shown)
		}
	}
	w.finish()
	for !strings.Contains(buffer.String(), "</end_json>") {
		line := next()
		if strings.Contains(line, "<EOF>") {
			t.Fatalf("the stream ends in %q", buffer.String())
		}
		buffer.WriteString(line + "\n")
	}
	footer := endExpression.FindStringSubmatch(buffer.String())
	if footer == nil || !strings.Contains(footer[1], `"result": "success"`) {
		t.Fatalf("footer in %q", buffer.String())
	}
	if late := r.get(w.path("/stream")).body; late != buffer.String() {
		t.Errorf("late read:\n%q\nlive read:\n%q", late, buffer.String())
	}
}

// All readers get the same bytes: from the start, from the middle, late, and slowly.
func TestStreamIsTheSameForAll(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.submit()
	const readers = 8
	texts := make([]string, readers)
	var group sync.WaitGroup
	join := func(i int) {
		resp := r.open("GET", w.path("/stream"), "")
		group.Go(func() {
			defer resp.Body.Close()
			var in io.Reader = resp.Body
			if i%3 == 1 {
				in = oneByte{resp.Body}
			}
			data, err := io.ReadAll(in)
			if err != nil {
				t.Error(err)
			}
			texts[i] = string(data)
		})
	}
	for i := range readers / 2 {
		join(i)
	}
	w.start()
	for i := range 200 {
		w.write(fmt.Sprintf("line %d <log> <start_json> \\ é\n", i))
		if i == 100 {
			for i := readers / 2; i < readers; i++ {
				join(i)
			}
		}
	}
	w.write("no end")
	w.finish()
	group.Wait()
	want := r.get(w.path("/stream")).body
	if again := r.get(w.path("/stream")).body; again != want || !strings.Contains(want, "line 199") {
		t.Fatalf("two late reads differ or lack a line: %d and %d bytes", len(want), len(again))
	}
	for i, text := range texts {
		if text != want {
			t.Errorf("reader %d got %d bytes, want %d", i, len(text), len(want))
		}
	}
	offset := strings.Index("line 0 <log> <start_json> \\ é\n", "é") // an offset counts bytes of the log file
	part := r.get(fmt.Sprintf("%s?offset=%d", w.path("/stream"), offset)).body
	if !strings.Contains(part, "<log>\né\nline 1 ") {
		t.Errorf("from offset %d: %.200q", offset, part)
	}
	r.problem(r.get(w.path("/stream?offset=-1")), 400, "Invalid parameter 'offset'")
	r.problem(r.get(w.path("/stream?offset=x")), 400, "Invalid parameter 'offset'")
	r.problem(r.get(w.path("/stream?off=1")), 400, "Unknown parameter 'off'")
}

type oneByte struct{ in io.Reader }

func (o oneByte) Read(p []byte) (int, error) { return o.in.Read(p[:1]) }

func TestFormats(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.submit().start()
	w.write("one\n")
	answers := make(chan reply, 1)
	go func() { answers <- r.get(w.path("/stream?format=json")) }()
	sse := r.open("GET", w.path("/stream?format=sse"), "")
	defer sse.Body.Close()
	next := lineReader(sse.Body)
	expect := func(lines ...string) {
		t.Helper()
		for _, want := range lines {
			if got := next(); got != want {
				t.Fatalf("event line %q, want %q", got, want)
			}
		}
	}
	expect("event: start_json", `data: {"id": "`+w.id.String()+`", "total": 2}`, "id: 0", "")
	expect("event: state_json", `data: {"state": "running"}`, "id: 0", "")
	expect("event: log", "data: one", "id: 4", "")
	must(t, r.owner.Output.WriteProgress(w.id, statefs.Progress{Done: 1, At: time.Unix(1, 0).UTC()}))
	w.write("two\n")
	var rest strings.Builder
	for !strings.Contains(rest.String(), `"done": 1`) || !strings.Contains(rest.String(), "data: two") {
		rest.WriteString(next() + "\n")
	}
	// A change of the progress alone is seen too: its file is followed.
	must(t, r.owner.Output.WriteProgress(w.id, statefs.Progress{Done: 2, At: time.Unix(2, 0).UTC()}))
	for !strings.Contains(rest.String(), `"done": 2`) {
		rest.WriteString(next() + "\n")
	}
	must(t, r.owner.Move(w.id, statefs.Running, statefs.Paused))
	for !strings.Contains(rest.String(), `{"state": "paused"}`) {
		rest.WriteString(next() + "\n")
	}
	must(t, r.owner.Move(w.id, statefs.Paused, statefs.Running))
	w.finish()
	for !strings.Contains(rest.String(), "event: end_json") {
		rest.WriteString(next() + "\n")
	}
	back := r.get(w.path("/stream?format=sse"), "Last-Event-ID: 4").body
	if !strings.Contains(back, "event: start_json") || !strings.Contains(back, "event: log\ndata: two\nid: 8\n") ||
		strings.Contains(back, "data: one") {
		t.Errorf("resumed at 4:\n%s", back)
	}
	r.problem(r.get(w.path("/stream?format=sse"), "Last-Event-ID: x"), 400, "Last-Event-ID")
	a := <-answers
	if a.status != 200 || a.header.Get("Content-Type") != "application/json" || a.json(t)["result"] != "success" {
		t.Errorf("format=json: %d %s", a.status, a.body)
	}
}

func TestLogTakesRanges(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.submit()
	if a := r.get(w.path("/log")); a.status != 200 || a.body != "" {
		t.Errorf("before there is a log: %d %q", a.status, a.body)
	}
	w.start()
	w.write("0123456789\n")
	for _, c := range []struct {
		give   string
		status int
		want   string
	}{
		{"bytes=0-3", 206, "0123"}, {"bytes=4-", 206, "456789\n"}, {"bytes=-2", 206, "9\n"}, {"bytes=50-", 416, ""},
	} {
		a := r.get(w.path("/log"), "Range: "+c.give)
		if a.status != c.status || (c.want != "" && a.body != c.want) {
			t.Errorf("%s: %d %q", c.give, a.status, a.body)
		}
	}
	w.finish()
	w.write("after the end")
	a := r.get(w.path("/log"))
	if a.body != "0123456789\n" || a.header.Get("ETag") != `"11"` ||
		a.header.Get("Content-Disposition") != "attachment; filename="+w.id.String()+".log" {
		t.Errorf("sealed: %q %v", a.body, a.header)
	}
}

func TestArtifactsStayInside(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.submit()
	dir := r.tree.ArtifactsPath(w.id)
	must(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o750))
	must(t, os.WriteFile(filepath.Join(dir, "a b.html"), []byte("<script>"), 0o640))
	must(t, os.Symlink(r.tree.Dir(), filepath.Join(dir, "out")))
	must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "passwd")))
	a := r.get(w.path("/artifacts/a%20b.html"))
	if a.status != 200 || a.header.Get("Content-Type") != "application/octet-stream" ||
		a.header.Get("Content-Disposition") != `attachment; filename="a b.html"` {
		t.Errorf("%d %v", a.status, a.header)
	}
	for _, name := range []string{"", "sub", "sub/", "passwd", "out/storage.json", "nothing"} {
		r.problem(r.get(w.path("/artifacts/"+name)), 404, "")
	}
}

// However slow a reader is, it does not slow the work down or grow the server's memory. The test runs alone, because it
// measures the heap.
func TestSlowReaderHoldsNothing(t *testing.T) {
	r := setup(t)
	w := r.submit()
	var group sync.WaitGroup
	quick := func(ctx context.Context) {
		started := make(chan struct{})
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: func() { close(started) }})
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url(w.path("/stream")), nil)
		must(t, err)
		group.Go(func() {
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			n, err := io.Copy(io.Discard, resp.Body)
			if ctx.Err() == nil && (err != nil || n < logPieces*logPiece) {
				t.Errorf("a quick reader got %d bytes: %v", n, err)
			}
		})
		r.await(started)
	}
	slow := r.open("GET", w.path("/stream"), "")
	defer slow.Body.Close()
	must(t, readOne(slow.Body))
	before := heapInUse()
	const readers = 98
	for range readers {
		quick(t.Context())
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	quick(ctx)

	w.start()
	piece := strings.Repeat(strings.Repeat("x", 127)+"\n", logPiece/128)
	most := uint64(0)
	for i := range logPieces {
		w.write(piece)
		if i == logPieces/2 {
			leave()
		}
		if i%64 == 32 {
			most = max(most, heapInUse())
			must(t, readOne(slow.Body))
		}
	}
	w.finish() // all is written after the slow reader has read a few bytes
	group.Wait()
	http.DefaultClient.CloseIdleConnections()
	// Each busy reader has one piece and the buffers of both ends, whatever the length of the log is.
	if grown := int64(most) - int64(before); grown > readers*4*logPiece {
		t.Errorf("the heap grew by %d bytes for %d busy readers", grown, readers)
	}
	if grown := int64(heapInUse()) - int64(before); grown > logPieces*logPiece/4 {
		t.Errorf("the heap grew by %d bytes for one stuck reader of a log of %d bytes", grown, logPieces*logPiece)
	}
	must(t, readOne(slow.Body))
}

func readOne(in io.Reader) error {
	_, err := io.ReadFull(in, make([]byte, 1))
	return err
}

const (
	logPieces = 192
	logPiece  = 64 << 10
)

// The daemon restores a marker that a person removed before it ends the operation, so that its end is an event.
func TestEndWithoutMarker(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.submit().start()
	resp := r.open("GET", w.path("/stream"), "")
	defer resp.Body.Close()
	must(t, os.Remove(filepath.Join(r.tree.JobsDir(), statefs.MarkerName(w.id, statefs.Running))))
	must(t, r.owner.RestoreMarker(w.id, statefs.Running, time.Now()))
	w.write("last words\n")
	w.finish()
	if text := readAll(t, resp); !strings.Contains(text, "last words\n</log>\n<end_json>") {
		t.Errorf("stream: %q", text)
	}
}

// The log is created before the marker is running, and is found by the event of that rename.
func TestLogThatComesLate(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.submit()
	resp := r.open("GET", w.path("/stream"), "")
	defer resp.Body.Close()
	next := lineReader(resp.Body)
	for range 4 {
		next()
	}
	log, err := r.owner.Output.AppendLog(w.id, "")
	must(t, err)
	defer log.Close()
	must(t, r.owner.Move(w.id, statefs.Queued, statefs.Running))
	_, err = log.WriteString("here\n")
	must(t, err)
	if line := next(); line != "here" {
		t.Errorf("got %q", line)
	}
}
