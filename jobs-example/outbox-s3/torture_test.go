package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Both servers are stopped and killed and started again, and a worker is killed, at random, while entries come in and
// two workers store them: for a minute in make torture, else for some seconds. In the end every document is accounted
// for.
func TestServersThatComeAndGo(t *testing.T) {
	t.Parallel()
	// The test server reads a whole collection for most queries, so that it bears some hundred entries.
	long, pause := 6*time.Second, 30*time.Millisecond
	if os.Getenv("JOBDIR_TORTURE") == "full" {
		long, pause = time.Minute, 80*time.Millisecond
	}
	seed := rand.Uint64()
	t.Logf("the seed is %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t)
	args := []string{"--every=100ms", "--retry=200ms", "--claim=3s"}
	workers := []*process{work(t, w.env(), args...), work(t, w.env(), args...)}
	made := &made{w: w, docs: map[string]bson.D{}}
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	var writing sync.WaitGroup
	// A test server that is killed while it makes a database does not start again: both exist before the first kill.
	made.put(ctx, 0)
	writing.Go(func() { made.make(ctx, pause) })
	ends := map[string]int{}
	for ctx.Err() == nil {
		rest(ctx, time.Duration(random.IntN(600))*time.Millisecond)
		how := []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}[random.IntN(2)]
		switch random.IntN(5) {
		case 0, 1:
			ends["mongo"]++
			w.mongo.end(how)
			rest(ctx, time.Duration(random.IntN(400))*time.Millisecond)
			w.mongo.up()
		case 2, 3:
			ends["s3"]++
			w.s3.end(how)
			rest(ctx, time.Duration(random.IntN(400))*time.Millisecond)
			w.s3.up()
		case 4:
			ends["worker"]++
			i := random.IntN(len(workers))
			workers[i].signal(how)
			workers[i].wait()
			workers[i] = work(t, w.env(), args...)
		}
	}
	writing.Wait()
	lost := 0
	for _, p := range workers {
		lost += p.count("LOST")
		p.stops()
	}
	last := work(t, w.env(), "--mode=once", "--retry=200ms", "--every=100ms")
	last.exits(exitLeft)
	t.Logf("%d entries; ended: %v; the workers that lived to the end lost a server %d times; %d were left for the last look", len(made.docs), ends, lost, last.count("Stored "))
	made.account()
}

func rest(ctx context.Context, long time.Duration) {
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// made is what the test has put into the source.
type made struct {
	w    *world
	docs map[string]bson.D // by the event
}

// make puts in one entry after another.
func (m *made) make(ctx context.Context, pause time.Duration) {
	for n := 1; ctx.Err() == nil; n++ {
		rest(ctx, pause)
		m.put(ctx, n)
	}
}

// put puts in the entry of a number: the document of the outbox, then that of the source, each until the server has it.
func (m *made) put(ctx context.Context, n int) {
	var id any = bson.NewObjectID()
	if n%2 == 0 {
		id = fmt.Sprintf("event-%05d", n)
	}
	event, _ := eventID(rawOf(m.w.t, id))
	doc := entryOf(id, with(event))
	if n%7 == 3 {
		doc = entryOf(id) // without a prediction
	}
	if n%11 != 5 {
		m.until(ctx, m.w.outbox, waits(id))
	}
	m.until(ctx, m.w.source, doc)
	m.docs[event] = doc
}

// until writes a document until the server has it, also when the time of the test is over.
func (m *made) until(ctx context.Context, c *mongo.Collection, doc bson.D) {
	err := until(func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_, err := c.InsertOne(ctx, doc)
		if mongo.IsDuplicateKeyError(err) {
			return nil // an answer was lost
		}
		return err
	})
	if err != nil {
		m.w.t.Error(err)
	}
}

// account compares everything that is there with what should be.
func (m *made) account() {
	w := m.w
	w.t.Helper()
	var want []string
	events := slices.Sorted(maps.Keys(m.docs))
	for _, event := range events {
		doc := m.docs[event]
		id, name := doc[0].Value, "detection/"+event+".json"
		var there bson.D
		if err := w.source.FindOne(w.t.Context(), bson.D{{Key: "_id", Value: id}}).Decode(&there); err != nil ||
			text(w.t, there) != text(w.t, doc) {
			w.t.Errorf("the source has %v, %v, want %v", there, err, doc)
		}
		known, err := w.outbox.CountDocuments(w.t.Context(), bson.D{{Key: "_id", Value: id}})
		if err != nil {
			w.t.Fatal(err)
		}
		switch {
		case known == 1 && len(doc) == 3:
			want = append(want, name)
			w.check(id, "videos", name)
		case known == 1:
			if mark := w.marked(id); mark.Status != "pending" || mark.Output.Object != "" {
				w.t.Errorf("%s has no prediction, and the outbox says %+v", event, mark)
			}
		}
	}
	names := w.names("videos")
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		w.t.Errorf("there are %d objects, want %d", len(names), len(want))
	}
	total, err := w.outbox.CountDocuments(w.t.Context(), bson.D{{Key: "status", Value: "predicted"}})
	if err != nil || total != int64(len(want)) {
		w.t.Errorf("the outbox says predicted %d times, %v, want %d", total, err, len(want))
	}
	if len(want) == 0 {
		w.t.Error("nothing was stored")
	}
}

func text(t *testing.T, doc bson.D) string {
	t.Helper()
	raw, err := bson.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return bson.Raw(raw).String()
}
