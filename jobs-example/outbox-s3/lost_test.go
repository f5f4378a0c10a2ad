package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Neither server is there at first. Each is named with the time until the next try, and nothing is marked before it
// is stored.
func TestWaitsForBothServersAndMarksNothingBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.insert(w.source, entryOf("early", with("early")), entryOf("other", with("other")))
	w.insert(w.outbox, waits("early"), waits("other"))
	w.s3.end(syscall.SIGTERM)
	w.mongo.end(syscall.SIGKILL)
	p := work(t, w.env(), "--mode=once", "--retry=100ms")
	p.says(`LOST: the source \(MongoDB, ` + w.mongo.addr + `\) is lost: .*It is tried again every 100ms\.`)
	w.mongo.up()
	p.says(`The source \(MongoDB, .*\) is there again\.`)
	p.says(`LOST: the S3 server \(` + w.s3.addr + `\) is lost: .*connection refused`)
	for _, id := range []string{"early", "other"} {
		if m := w.marked(id); m.Status != "pending" || !m.PredictedAt.IsZero() {
			t.Errorf("marked before it is stored: %+v", m)
		}
	}
	w.s3.up()
	p.says(`The S3 server .* is there again\.`)
	p.exits(0)
	w.check("early", "videos", "detection/early.json")
	w.check("other", "videos", "detection/other.json")
}

// Source and outbox are on two servers, and the one of the outbox goes away between the object and the mark.
func TestTwoServersAndAnOutboxThatIsLostBeforeTheMark(t *testing.T) {
	t.Parallel()
	w, second := newWorld(t), newMongo(t).up()
	_, runner := collections(t, second.addr)
	w.insert(runner, entryOf("one", with("one")))
	w.insert(w.outbox, waits("one"))
	gate := newGate(t, w.s3.addr)
	env := append(w.env(), "RUNNER_MONGO_URI=mongodb://"+second.addr, "MINIO_ENDPOINT="+gate.addr)
	p := work(t, env, "--mode=once", "--retry=100ms")
	<-gate.stored // the object is there, and the worker does not know it
	w.mongo.end(syscall.SIGKILL)
	gate.open()
	p.says(`LOST: the outbox \(MongoDB, ` + w.mongo.addr + `\) is lost`)
	if _, _, there := w.object("videos", "detection/one.json"); !there {
		t.Error("the object is not there")
	}
	w.mongo.up()
	p.exits(0)
	w.check("one", "videos", "detection/one.json")
	if n, err := runner.CountDocuments(t.Context(), bson.D{{Key: "status", Value: "predictable"}}); n != 1 || err != nil {
		t.Errorf("the source has %d, %v", n, err)
	}
}

// The entry that is under way is finished and marked before the worker ends by the signal; none is begun after it.
func TestSIGTERMFinishesTheOneUnderWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 5 {
		w.insert(w.source, entryOf(i, with(i)))
		w.insert(w.outbox, waits(i))
	}
	gate := newGate(t, w.s3.addr)
	p := work(t, append(w.env(), "MINIO_ENDPOINT="+gate.addr))
	<-gate.stored
	p.signal(syscall.SIGTERM)
	p.says(`Stopping: SIGTERM\.`)
	gate.open()
	if status := p.wait(); status.Signal() != syscall.SIGTERM {
		t.Errorf("the worker ended with %#x", status)
	}
	names := w.names("videos")
	if len(names) != 1 || p.count("Stored ") != 1 {
		t.Fatalf("the objects are %q", names)
	}
	var id int
	if _, err := fmt.Sscanf(names[0], "detection/%d.json", &id); err != nil {
		t.Fatal(err)
	}
	w.check(id, "videos", names[0])
}

// A server that never answers delays the end by seconds and not for ever. What was under way is found again by the
// next worker.
func TestSIGTERMGivesUpWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.insert(w.source, entryOf("stuck", with("stuck")))
	w.insert(w.outbox, waits("stuck"))
	gate := newGate(t, w.s3.addr)
	defer gate.open()
	p := work(t, append(w.env(), "MINIO_ENDPOINT="+gate.addr))
	<-gate.stored
	p.stops()
	if m := w.marked("stuck"); m.Status != "pending" {
		t.Errorf("marked: %+v", m)
	}
	work(t, w.env(), "--mode=once").exits(0)
	w.check("stuck", "videos", "detection/stuck.json")
}

// Wrong credentials concern every object: they hold up the worker, not single entries.
func TestWrongCredentialsAreSaidWithoutThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.insert(w.source, entryOf("one", with("one")))
	w.insert(w.outbox, waits("one"))
	p := work(t, append(w.env(), "MINIO_SECRET_KEY=hunter2hunter2"), "--retry=50ms")
	p.says(`(?s)LOST: the S3 server .* is lost: .*LOST: the S3 server`)
	p.stops()
	if strings.Contains(p.text(), "hunter2") || p.count("ERROR") != 0 {
		t.Errorf("the log says\n%s", p.text())
	}
	if m := w.marked("one"); m.Status != "pending" {
		t.Errorf("marked: %+v", m)
	}
}

// gate is a proxy of the S3 server that holds the answer to the first PUT.
type gate struct {
	addr   string
	stored chan struct{} // closed when the server has answered
	held   chan struct{}
}

func (g *gate) open() {
	select {
	case <-g.held:
	default:
		close(g.held)
	}
}

func newGate(t *testing.T, to string) *gate {
	t.Helper()
	g := &gate{stored: make(chan struct{}), held: make(chan struct{})}
	proxy := httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: to})
			r.Out.Host = r.In.Host // the signature is of this name
		},
		ModifyResponse: func(answer *http.Response) error {
			if answer.Request.Method != http.MethodPut {
				return nil
			}
			select {
			case <-g.stored:
			default:
				close(g.stored)
			}
			<-g.held
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	server := httptest.NewServer(&proxy)
	g.addr = server.Listener.Addr().String()
	t.Cleanup(func() { g.open(); server.Close() })
	return g
}

// Without other settings it is every five seconds, also when there never was a server.
func TestTriesEveryFiveSeconds(t *testing.T) {
	t.Parallel()
	p := work(t, []string{
		"MONGO_URI=mongodb://" + address(t), "MINIO_ENDPOINT=" + address(t),
		"MINIO_ACCESS_KEY=" + testKey, "MINIO_SECRET_KEY=" + testSecret,
	}, "--mode=once")
	p.says(`(?s)LOST: .*connection refused.*It is tried again every 5s\..*LOST: .*It is tried again every 5s\.`)
	p.stops()
}
