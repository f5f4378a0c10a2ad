package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	patience    = 2 * time.Minute // for one request
	finishing   = 5 * time.Second // for the entry that is under way when the worker is stopped
	holdRefused = time.Minute     // until what was refused is tried again
)

// worker stores entries, one at a time. Its methods are for one goroutine.
type worker struct {
	settings

	source  source
	outbox  outbox
	claims  claims
	objects objects
	out     *report
	notes   notes
	clients []*mongo.Client

	lost  map[string]bool // the servers that could not be reached at the last try
	fresh bool            // something was stored in this look
	again bool            // something is to be done again, because a connection was lost
	// cleaned says that claims of runs that were killed are removed.
	cleaned bool
}

// connect prepares the connections; they are made when they are needed. An error means that the settings are wrong.
func connect(s settings, out *report) (*worker, error) {
	w := &worker{settings: s, out: out, lost: map[string]bool{}}
	open := func(uri, variable string) (*mongo.Client, error) {
		// A server that does not answer is to fail before the next try begins.
		selection := max(time.Second, s.retry*4/5)
		c,
			err := mongo.Connect(options.Client().ApplyURI(uri).SetAppName("outbox-s3").SetServerSelectionTimeout(selection).SetConnectTimeout(selection))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", variable, err)
		}
		w.clients = append(w.clients, c)
		return c, nil
	}
	runner, err := open(s.runnerURI, "RUNNER_MONGO_URI")
	if err != nil {
		return nil, err
	}
	main, err := open(s.mongoURI, "MONGO_URI")
	if err != nil {
		return nil, err
	}
	w.source, w.outbox = source{runner.Database("runner_db").Collection("runner_predictions")},
		outbox{main.Database("main_db").Collection("outbox")}
	w.claims = claims{main.Database("main_db").Collection("outbox_claims"), s.name}
	// The worker itself tries again, so that a person sees it.
	c, err := minio.New(s.endpoint, &minio.Options{
		Creds:  credentials.NewStaticV4(s.accessKey, s.secretKey, ""),
		Secure: s.secure, MaxRetries: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("MINIO_ENDPOINT %q: %w", s.endpoint, err)
	}
	w.objects = objects{minio.Core{Client: c}}
	return w, nil
}

func (w *worker) disconnect() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, c := range w.clients {
		_ = c.Disconnect(ctx) // the process ends
	}
}

func (w *worker) left() left { return w.notes.count() }

// The servers as the log names them.
func (w *worker) atSource() string  { return "source (MongoDB, " + host(w.runnerURI) + ")" }
func (w *worker) atOutbox() string  { return "outbox (MongoDB, " + host(w.mongoURI) + ")" }
func (w *worker) atObjects() string { return "S3 server (" + w.endpoint + ")" }

// introduce says what is brought where.
func (w *worker) introduce() {
	w.out.phase(w.mode)
	w.out.line("From the %s to the %s, marked in the %s.", w.atSource(), w.atObjects(), w.atOutbox())
}

// once stores until a look through the whole source finds nothing more to do.
func (w *worker) once(ctx context.Context) {
	w.introduce()
	for w.look(ctx) {
		switch {
		case w.fresh || w.again:
		case w.notes.awaits():
			w.wait(ctx, w.every)
		default:
			return
		}
	}
}

// look goes through the whole source once. It returns false when ctx ended before.
func (w *worker) look(ctx context.Context) bool {
	w.fresh, w.again = false, false
	w.notes.begin()
	for _, kind := range kinds {
		var last *bson.RawValue
		for {
			var ids []bson.RawValue
			if !w.insist(ctx, w.atSource(), func(ctx context.Context) (err error) {
				ids,
					err = w.source.page(ctx, kind, last)
				return err
			}) || !w.take(ctx, ids) {
				return false
			}
			if len(ids) < batch {
				break
			}
			last = &ids[len(ids)-1]
		}
	}
	var strange []bson.RawValue
	if !w.insist(ctx, w.atSource(), func(ctx context.Context) (err error) {
		strange,
			err = w.source.strange(ctx)
		return err
	}) {
		return false
	}
	for _, id := range strange {
		_, err := eventID(id)
		w.refuse(id, err)
	}
	w.notes.ended()
	w.cleaned = w.cleaned || w.claims.clean(ctx) == nil
	return true
}

// take stores those of a few entries that are to be stored. It returns false when ctx ended before.
func (w *worker) take(ctx context.Context, ids []bson.RawValue) bool {
	if len(ids) == 0 {
		return true
	}
	var statuses map[string]string
	if !w.insist(ctx, w.atOutbox(), func(ctx context.Context) (err error) {
		statuses,
			err = w.outbox.statuses(ctx, ids)
		return err
	}) {
		return false
	}
	rest := slices.DeleteFunc(slices.Clone(ids), func(id bson.RawValue) bool {
		return statuses[key(id)] == predicted ||
			w.notes.held(id, time.Now())
	})
	var entries []entry
	if len(rest) > 0 && !w.insist(ctx, w.atSource(), func(ctx context.Context) (err error) {
		entries,
			err = w.source.entries(ctx, rest)
		return err
	}) {
		return false
	}
	for _, id := range ids {
		gone := !w.notes.held(id, time.Now()) && !slices.ContainsFunc(entries,
			func(e entry) bool { return key(e.ID) == key(id) })
		if gone || statuses[key(id)] == predicted {
			w.notes.forget(id)
		}
	}
	// In an order of its own, so that workers who have the same batch seldom store the same entry.
	rand.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
	for _, e := range entries {
		if ctx.Err() != nil {
			return false
		}
		_, there := statuses[key(e.ID)]
		switch {
		case !e.complete():
			if w.notes.add(e.ID, incomplete, "", time.Time{}) {
				w.out.line("Skipped %s: it has no prediction yet.", shown(e.ID))
			}
		case !there:
			w.miss(e.ID)
		default:
			w.deliver(ctx, e)
		}
	}
	return ctx.Err() == nil
}

// deliver stores one entry and logs the result. If a server is lost, it waits and continues with the
// following entries: the next pass finds this one again.
func (w *worker) deliver(ctx context.Context, e entry) {
	began := time.Now()
	what, err := w.store(ctx, e)
	var wrong *refusal
	var lost *lostError
	var other *claimedError
	switch {
	case err == nil && what == "":
		w.notes.forget(e.ID) // another worker was faster
	case err == nil:
		w.notes.forget(e.ID)
		w.fresh = true
		w.out.stored++
		w.out.phase(w.mode)
		w.out.line("Stored %s", what)
	case errors.Is(err, errMissing):
		w.miss(e.ID)
	case errors.As(err, &other):
		w.notes.add(e.ID, claimed, "", other.until)
	case errors.As(err, &wrong):
		w.refuse(e.ID, wrong)
	case errors.As(err, &lost):
		w.again = true
		w.lose(ctx, lost, began)
	}
}

func (w *worker) miss(id bson.RawValue) {
	if w.notes.add(id, missing, "", time.Time{}) {
		w.out.line("ERROR: %s is not stored: %v.", shown(id), errMissing)
	}
}

func (w *worker) refuse(id bson.RawValue, err error) {
	if w.notes.add(id, refused, err.Error(), time.Now().Add(holdRefused)) {
		w.out.line("ERROR: %s is not stored: %v.", shown(id), err)
	}
}

// store claims one entry, brings it to its place and marks it then. It returns what is there now, or "" when another
// worker has stored it. A stop of the worker waits for this entry, when that does not take long.
func (w *worker) store(ctx context.Context, e entry) (what string, err error) {
	until := time.Now().Add(w.claim)
	ctx, done := finish(ctx, w.claim*2/3) // the claim outlives the attempt
	defer done()
	name, err := objectName(e.ID)
	if err != nil {
		return "", &refusal{err}
	}
	bucket := defaultBucket
	if !e.Bucket.IsZero() && e.Bucket.Type != bson.TypeNull {
		text, ok := e.Bucket.StringValueOK()
		if !ok {
			return "", &refusal{fmt.Errorf("its bucket is no string but of the type %s", e.Bucket.Type)}
		}
		bucket = text
	}
	body, err := plain(e.Prediction)
	if err != nil {
		return "", &refusal{err}
	}
	if err := w.at(w.atOutbox(), w.claims.take(ctx, e.ID, until)); err != nil {
		return "", err
	}
	defer w.claims.release(ctx, e.ID)
	if stored, err := w.outbox.stored(ctx, e.ID); err != nil || stored { // by the worker that had the claim before
		return "", w.at(w.atOutbox(), err)
	}
	if err := w.at(w.atObjects(), w.objects.put(ctx, bucket, name, body)); err != nil {
		return "", err
	}
	if err := w.at(w.atOutbox(), w.outbox.mark(ctx, e.ID, bucket, name)); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s/%s (%d bytes).", bucket, name, len(body)), nil
}

// finish returns a context that outlives the given one for a short time.
func finish(ctx context.Context, most time.Duration) (context.Context, func()) {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(most, patience))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(finishing)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-own.Done():
		}
	})
	return own, func() { stop(); cancel() }
}
