package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// replica is a proxy of a server without change streams that simulates them as the protocol describes; it
// forwards everything else. The test reports each change to it, and it ignores the pipeline: it does not
// prove how a replica set behaves.
type replica struct {
	t    *testing.T
	addr string
	to   string

	mu      sync.Mutex
	changed map[string][]bson.RawValue // by the collection: the _ids, in their order
	more    chan struct{}              // closed when there is more
	cursors map[int64]*cursor
	opened  []bson.Raw // the commands that opened a stream
	refuse  int32      // the error code of each getMore until a stream is opened
	conns   map[net.Conn]bool
}

type cursor struct {
	collection string
	next       int
}

func newReplica(t *testing.T, to string) *replica {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{
		t: t, addr: l.Addr().String(), to: to, changed: map[string][]bson.RawValue{}, more: make(chan struct{}),
		cursors: map[int64]*cursor{}, conns: map[net.Conn]bool{},
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			r.conns[conn] = true
			r.mu.Unlock()
			serving.Go(func() { r.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		r.cut()
		serving.Wait()
	})
	return r
}

// tell sends a change of a document to the streams of a collection.
func (r *replica) tell(collection string, id any) {
	r.t.Helper()
	raw := rawOf(r.t, id)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed[collection] = append(r.changed[collection], raw)
	close(r.more)
	r.more = make(chan struct{})
}

// cut closes all connections.
func (r *replica) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for conn := range r.conns {
		_ = conn.Close()
	}
}

func (r *replica) serve(conn net.Conn) {
	defer conn.Close()
	server, err := net.Dial("tcp", r.to)
	if err != nil {
		return
	}
	defer server.Close()
	for {
		message, err := readMessage(conn)
		if err != nil {
			return
		}
		answer, ours := r.answer(message)
		if !ours {
			if _, err = server.Write(message); err == nil {
				answer, err = readMessage(server)
			}
		}
		if err == nil {
			_, err = conn.Write(answer)
		}
		if err != nil {
			return
		}
	}
}

const (
	header  = 16   // length, number, number of the question, kind
	opMsg   = 2013 // the kind of all commands but the first
	section = header + 4 + 1
)

func readMessage(from io.Reader) ([]byte, error) {
	size := make([]byte, 4)
	if _, err := io.ReadFull(from, size); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(size)
	if n < header || n > 64<<20 {
		return nil, fmt.Errorf("a message of %d bytes", n)
	}
	message := make([]byte, n)
	copy(message, size)
	_, err := io.ReadFull(from, message[4:])
	return message, err
}

// answer returns what the streams answer, or false when the message is not for them.
func (r *replica) answer(message []byte) (answer []byte, ours bool) {
	if binary.LittleEndian.Uint32(message[12:]) != opMsg || len(message) < section || message[section-1] != 0 {
		return nil, false
	}
	var command struct {
		Aggregate   string
		Pipeline    []bson.Raw
		GetMore     int64   `bson:"getMore"`
		MaxTimeMS   int64   `bson:"maxTimeMS"`
		KillCursors string  `bson:"killCursors"`
		Cursors     []int64 `bson:"cursors"`
		DB          string  `bson:"$db"`
	}
	body := bson.Raw(message[section:])
	if err := bson.Unmarshal(body, &command); err != nil {
		return nil, false
	}
	var reply bson.D
	switch {
	case command.Aggregate != "" && len(command.Pipeline) > 0:
		stage, ok := command.Pipeline[0].Lookup("$changeStream").DocumentOK()
		if !ok {
			return nil, false
		}
		reply = r.open(body, command.DB+"."+command.Aggregate, stage)
	case command.GetMore != 0:
		if reply = r.next(command.GetMore, command.MaxTimeMS); reply == nil {
			return nil, false
		}
	case command.KillCursors != "":
		r.mu.Lock()
		_, ok := r.cursors[command.Cursors[0]]
		r.mu.Unlock()
		if !ok {
			return nil, false
		}
		reply = bson.D{{Key: "ok", Value: 1}}
	default:
		return nil, false
	}
	doc, err := bson.Marshal(reply)
	if err != nil {
		r.t.Error(err)
	}
	answer = make([]byte, section, section+len(doc))
	binary.LittleEndian.PutUint32(answer, uint32(section+len(doc)))
	copy(answer[8:12], message[4:8])
	binary.LittleEndian.PutUint32(answer[12:], opMsg)
	return append(answer, doc...), true
}

// open begins a stream now, or behind the change that it is to be resumed after.
func (r *replica) open(command bson.Raw, collection string, stage bson.Raw) bson.D {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opened, r.refuse = append(r.opened, command), 0
	c := &cursor{collection, len(r.changed[collection])}
	if token, ok := stage.Lookup("resumeAfter", "n").Int32OK(); ok {
		c.next = int(token)
	}
	id := int64(len(r.cursors) + 1)
	r.cursors[id] = c
	return bson.D{{Key: "ok", Value: 1}, {Key: "cursor", Value: bson.D{
		{Key: "id", Value: id},
		{Key: "ns", Value: collection},
		{Key: "firstBatch", Value: bson.A{}},
		{Key: "postBatchResumeToken", Value: bson.D{{Key: "n", Value: int32(c.next)}}},
	}}}
}

// next waits for changes, for a second at most, as a server does.
func (r *replica) next(id, millis int64) bson.D {
	if millis == 0 {
		millis = 1000
	}
	timer := time.NewTimer(time.Duration(millis) * time.Millisecond)
	defer timer.Stop()
	for waiting := true; ; {
		r.mu.Lock()
		c, more, refuse := r.cursors[id], r.more, r.refuse
		if c == nil {
			r.mu.Unlock()
			return nil
		}
		changes := bson.A{}
		for ; c.next < len(r.changed[c.collection]); c.next++ {
			changes = append(changes, bson.D{
				{Key: "_id", Value: bson.D{{Key: "n", Value: int32(c.next + 1)}}},
				{Key: "operationType", Value: "insert"},
				{Key: "documentKey", Value: bson.D{{Key: "_id", Value: r.changed[c.collection][c.next]}}},
			})
		}
		n := int32(c.next)
		r.mu.Unlock()
		if refuse != 0 {
			return bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: refuse}, {Key: "errmsg", Value: "the test refuses it"}}
		}
		if len(changes) > 0 || !waiting {
			return bson.D{{Key: "ok", Value: 1}, {Key: "cursor", Value: bson.D{
				{Key: "id", Value: id},
				{Key: "ns", Value: "db.c"},
				{Key: "nextBatch", Value: changes},
				{Key: "postBatchResumeToken", Value: bson.D{{Key: "n", Value: n}}},
			}}}
		}
		select {
		case <-more:
		case <-timer.C:
			waiting = false
		}
	}
}
