package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// follow stores what comes, until ctx ends. Where both servers have change streams these say which entries to look
// at; otherwise, and where the user may not read them, it looks through the source every second. Neither is trusted
// for more than when to look.
func (w *worker) follow(ctx context.Context) {
	w.introduce()
	for ctx.Err() == nil {
		began := time.Now()
		c, err := w.changes(ctx)
		if unsupported(err) {
			w.out.line("Following by a query every %s, as there are no change streams: %v.", w.every, errors.Unwrap(err))
			w.poll(ctx)
			return
		}
		if err == nil {
			w.out.line("Following by change streams.")
			err = w.listen(ctx, c)
			c.close()
			began = time.Now()
		}
		if lost, ok := errors.AsType[*lostError](err); ok {
			w.lose(ctx, lost, began)
		}
	}
}

// poll looks again and again, and rests when there was nothing to do.
func (w *worker) poll(ctx context.Context) {
	for w.look(ctx) {
		if !w.fresh && !w.again {
			w.wait(ctx, w.every)
		}
	}
}

// changes are the two change streams.
type changes struct {
	ids    chan bson.RawValue
	failed chan error
	stop   context.CancelFunc
	ended  sync.WaitGroup
}

// ours matches the changes that may create work: all but the changes that a worker makes when it marks an entry.
var ours = mongo.Pipeline{{{Key: "$match", Value: bson.D{
	{Key: "operationType", Value: bson.D{{Key: "$in", Value: bson.A{"insert", "replace", "update"}}}},
	{Key: "updateDescription.updatedFields.output_s3", Value: bson.D{{Key: "$exists", Value: false}}},
}}}}

// changes opens both streams. What happens from now on is in them.
func (w *worker) changes(ctx context.Context) (*changes, error) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c := &changes{ids: make(chan bson.RawValue), failed: make(chan error, 2)}
	var opened []*mongo.ChangeStream
	for _, at := range []struct {
		server string
		c      *mongo.Collection
	}{{w.atSource(), w.source.c}, {w.atOutbox(), w.outbox.c}} {
		stream, err := at.c.Watch(limited, ours, options.ChangeStream().SetBatchSize(batch))
		if err = w.at(at.server, err); err != nil {
			for _, s := range opened {
				_ = s.Close(limited)
			}
			return nil, err
		}
		opened = append(opened, stream)
	}
	ctx, c.stop = context.WithCancel(ctx)
	for i, server := range []string{w.atSource(), w.atOutbox()} {
		c.ended.Go(func() { c.read(ctx, server, opened[i]) })
	}
	return c, nil
}

func (c *changes) read(ctx context.Context, server string, stream *mongo.ChangeStream) {
	defer func() { _ = stream.Close(context.WithoutCancel(ctx)) }()
	for stream.Next(ctx) {
		id := stream.Current.Lookup("documentKey", "_id")
		id.Value = slices.Clone(id.Value) // it lies in the stream's own buffer
		select {
		case c.ids <- id:
		case <-ctx.Done():
			return
		}
	}
	err := stream.Err()
	if err == nil {
		err = errors.New("the change stream has ended: was the collection dropped or renamed?")
	}
	c.failed <- &lostError{server, err}
}

func (c *changes) close() {
	c.stop()
	c.ended.Wait()
}

// listen looks through everything once, then at what the streams name, and every minute at what could not be stored.
// It returns when a stream fails, or nil when ctx has ended.
func (w *worker) listen(ctx context.Context, c *changes) error {
	minute := time.NewTicker(holdRefused)
	defer minute.Stop()
	w.again = true
	for ctx.Err() == nil {
		for w.again || w.fresh {
			if !w.look(ctx) {
				return nil
			}
		}
		var ids []bson.RawValue
		select {
		case id := <-c.ids:
			ids = c.more(id)
		case err := <-c.failed:
			return err
		case <-minute.C:
			ids = w.notes.ids()
		case <-ctx.Done():
			return nil
		}
		for part := range slices.Chunk(ids, batch) {
			w.take(ctx, part)
		}
		w.fresh = false // the stream says what else there is
	}
	return nil
}

// more returns an _id and the IDs that arrived with it, at most a batch.
func (c *changes) more(id bson.RawValue) []bson.RawValue {
	ids, seen := []bson.RawValue{id}, map[string]bool{key(id): true}
	for len(ids) < batch {
		select {
		case id := <-c.ids:
			if !seen[key(id)] {
				ids, seen[key(id)] = append(ids, id), true
			}
		default:
			return ids
		}
	}
	return ids
}
