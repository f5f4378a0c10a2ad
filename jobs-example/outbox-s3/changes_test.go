package main

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

const (
	sourceName = "runner_db.runner_predictions"
	outboxName = "main_db.outbox"
)

// With change streams the worker looks at everything once, and then at what they name alone; after a loss it looks at
// everything again. The streams are played, see replica.
func TestFollowByChangeStreams(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newReplica(t, w.mongo.addr)
	add := func(id string) {
		w.insert(w.outbox, waits(id))
		w.insert(w.source, entryOf(id, with(id)))
	}
	w.insert(w.source, entryOf(true, with("strange")))
	p := work(t, append(w.env(), "MONGO_URI=mongodb://"+r.addr), "--every=20ms", "--retry=100ms")
	p.says("Following by change streams")
	p.says("of the type boolean") // which is the last thing that a look finds

	add("untold")
	add("told")
	r.tell(sourceName, "told")
	p.says("Stored videos/detection/told.json")
	w.insert(w.source, entryOf("lonely", with("lonely")), entryOf("slow"))
	w.insert(w.outbox, waits("slow"))
	r.tell(sourceName, "lonely")
	r.tell(sourceName, "slow")
	p.says(`ERROR: "lonely" is not stored`)
	p.says(`"slow": it has no prediction`)
	w.insert(w.outbox, waits("lonely"))
	r.tell(outboxName, "lonely")
	p.says("Stored videos/detection/lonely.json")
	w.set(w.source, "slow", with("slow"))
	r.tell(sourceName, "slow")
	p.says("Stored videos/detection/slow.json")
	if m := w.marked("untold"); m.Status != "pending" {
		t.Errorf("it looks at more than the streams name: %+v", m)
	}

	// Connections are cut: the driver goes on where the streams were.
	r.cut()
	add("after the cut")
	r.tell(sourceName, "after the cut")
	p.says("Stored videos/detection/after the cut.json")

	// The server no longer knows where the stream was: it is opened anew, and everything is looked at.
	const historyLost = 286
	r.mu.Lock()
	r.refuse = historyLost
	r.mu.Unlock()
	p.says(`(?s)LOST: .*the test refuses it.*Following by change streams`)
	p.says("Stored videos/detection/untold.json")

	// The server is down temporarily.
	add("while away")
	w.mongo.end(syscall.SIGKILL)
	r.cut()
	w.mongo.up()
	add("after")
	r.tell(sourceName, "while away")
	r.tell(sourceName, "after")
	p.says("Stored videos/detection/after.json")
	p.says("Stored videos/detection/while away.json")
	p.stops()
	for _, id := range []string{"told", "lonely", "slow", "untold", "after the cut", "while away", "after"} {
		w.check(id, "videos", "detection/"+id+".json")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, command := range r.opened {
		if text := command.String(); !strings.Contains(text,
			`"updateDescription.updatedFields.output_s3": {"$exists": false}`) ||
			!strings.Contains(text, `"insert","replace","update"`) {
			t.Errorf("the stream was opened by %s", text)
		}
	}
}

func TestWhatMeansThatThereAreNoChangeStreams(t *testing.T) {
	t.Parallel()
	for code, want := range map[int32]bool{
		40573: true,                           // it is no member of a replica set
		238:   true,                           // the server answers NotImplemented
		13:    true,                           // not allowed
		11600: false, 10107: false, 91: false, // it stops, or another one takes over
	} {
		err := error(&lostError{"server", mongo.CommandError{Code: code, Message: "no"}})
		if unsupported(err) != want {
			t.Errorf("code %d: %v", code, !want)
		}
	}
	for _, err := range []error{
		errors.New("dial tcp: connection refused"),
		mongo.CommandError{Code: 7, Labels: []string{"NetworkError"}},
		mongo.CommandError{Code: 43, Labels: []string{"ResumableChangeStreamError"}},
		mongo.CommandError{Message: "incomplete read of message header"},
		nil,
	} {
		if unsupported(err) {
			t.Errorf("%v", err)
		}
	}
}
