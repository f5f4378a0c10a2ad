package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// world is what the worker works on: both databases and the S3 server, as the test sees them.
type world struct {
	t       *testing.T
	mongo   *server
	s3      *server
	source  *mongo.Collection
	outbox  *mongo.Collection
	objects *minio.Client
}

// newWorld starts servers with the buckets videos and other.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, mongo: newMongo(t).up(), s3: newS3(t, "videos", "other").up()}
	w.outbox, w.source = collections(t, w.mongo.addr)
	var err error
	if w.objects, err = minio.New(w.s3.addr, &minio.Options{Creds: credentials.NewStaticV4(testKey,
		testSecret, "")}); err != nil {
		t.Fatal(err)
	}
	return w
}

// collections are those of the worker on one server.
func collections(t *testing.T, addr string) (outbox, source *mongo.Collection) {
	t.Helper()
	c, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Disconnect(context.Background()) })
	return c.Database("main_db").Collection("outbox"), c.Database("runner_db").Collection("runner_predictions")
}

// env is the environment of the worker.
func (w *world) env() []string {
	return []string{
		"MONGO_URI=mongodb://" + w.mongo.addr, "MINIO_ENDPOINT=" + w.s3.addr,
		"MINIO_ACCESS_KEY=" + testKey, "MINIO_SECRET_KEY=" + testSecret,
	}
}

// insert writes documents, one after another: a server that was away has cut the connections that the driver keeps.
func (w *world) insert(c *mongo.Collection, docs ...bson.D) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), testPatience)
	defer cancel()
	for _, doc := range docs {
		err := until(func() error {
			if _, err := c.InsertOne(ctx, doc); !mongo.IsDuplicateKeyError(err) {
				return err
			}
			return nil // the answer was lost
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// entryOf is a document of the source.
func entryOf(id any, more ...bson.E) bson.D {
	return append(bson.D{{Key: "_id", Value: id}, {Key: "status", Value: "predictable"}}, more...)
}

// with is a prediction that no other entry has.
func with(id any) bson.E {
	return bson.E{Key: "prediction", Value: bson.D{
		{Key: "event", Value: id},
		{Key: "label", Value: "Bär <&> 熊"},
		{Key: "boxes", Value: bson.A{1, 2.5}},
	}}
}

// waits is a document of the outbox that waits for its result.
func waits(id any) bson.D {
	return bson.D{{Key: "_id", Value: id}, {Key: "status", Value: "pending"}, {Key: "camera", Value: "north"}}
}

// done is a document of the outbox whose result is stored.
func done(id any) bson.D { return bson.D{{Key: "_id", Value: id}, {Key: "status", Value: "predicted"}} }

// marked is what the worker writes into a document of the outbox.
type marked struct {
	Status      string
	Camera      string
	PredictedAt time.Time                       `bson:"predicted_at"`
	Output      struct{ Bucket, Object string } `bson:"output_s3"`
}

func (w *world) marked(id any) marked {
	w.t.Helper()
	var m marked
	if err := w.outbox.FindOne(w.t.Context(), bson.D{{Key: "_id", Value: id}}).Decode(&m); err != nil {
		w.t.Fatalf("outbox of %v: %v", id, err)
	}
	return m
}

// object returns the content and the type of an object, or false when there is none.
func (w *world) object(bucket, name string) (content, kind string, there bool) {
	w.t.Helper()
	o, err := w.objects.GetObject(w.t.Context(), bucket, name, minio.GetObjectOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer o.Close()
	text, err := io.ReadAll(o)
	var answer minio.ErrorResponse
	if errors.As(err, &answer) && answer.Code == "NoSuchKey" {
		return "", "", false
	}
	if err != nil {
		w.t.Fatalf("%s/%s: %v", bucket, name, err)
	}
	info, err := o.Stat()
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text), info.ContentType, true
}

// names are the objects of a bucket.
func (w *world) names(bucket string) []string {
	w.t.Helper()
	var names []string
	for o := range w.objects.ListObjects(w.t.Context(), bucket, minio.ListObjectsOptions{Recursive: true}) {
		if o.Err != nil {
			w.t.Fatal(o.Err)
		}
		names = append(names, o.Key)
	}
	return names
}

// check holds everything about one entry that is to be stored.
func (w *world) check(id any, bucket, name string) {
	w.t.Helper()
	content, kind, there := w.object(bucket, name)
	switch {
	case !there:
		w.t.Errorf("%s/%s is not there", bucket, name)
		return
	case kind != "application/json":
		w.t.Errorf("%s is of the type %q", name, kind)
	case !strings.HasPrefix(content, "{\n  \"event\": ") ||
		!strings.Contains(content, "\"label\": \"Bär <&> 熊\",\n  \"boxes\": [\n    1,\n    2.5\n  ]\n}"):
		w.t.Errorf("%s has\n%s", name, content)
	}
	var parsed struct{ Event any }
	text, _ := eventID(rawOf(w.t, id))
	if err := json.Unmarshal([]byte(content), &parsed); err != nil || text != toText(parsed.Event) {
		w.t.Errorf("%s is of the event %v: %v", name, parsed.Event, err)
	}
	m := w.marked(id)
	if m.Status != "predicted" || m.Output.Bucket != bucket || m.Output.Object != name || m.PredictedAt.IsZero() ||
		m.Camera != "north" {
		w.t.Errorf("outbox of %v: %+v", id, m)
	}
}

// snapshot is the whole source as text, to be compared with another one.
func (w *world) snapshot() string {
	w.t.Helper()
	cursor, err := w.source.Find(w.t.Context(), bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		w.t.Fatal(err)
	}
	var docs []bson.Raw
	if err := cursor.All(w.t.Context(), &docs); err != nil {
		w.t.Fatal(err)
	}
	var text strings.Builder
	for _, doc := range docs {
		text.WriteString(doc.String() + "\n")
	}
	return text.String()
}

func rawOf(t *testing.T, value any) bson.RawValue {
	t.Helper()
	kind, data, err := bson.MarshalValue(value)
	if err != nil {
		t.Fatal(err)
	}
	return bson.RawValue{Type: kind, Value: data}
}

func toText(value any) string {
	text, _ := json.Marshal(value)
	return strings.Trim(string(text), `"`)
}

// set changes a member of a document.
func (w *world) set(c *mongo.Collection, id any, to bson.E) {
	w.t.Helper()
	result, err := c.UpdateOne(w.t.Context(), bson.D{{Key: "_id", Value: id}}, bson.D{{Key: "$set", Value: bson.D{to}}})
	if err != nil || result.MatchedCount != 1 {
		w.t.Fatalf("update %v: %+v, %v", id, result, err)
	}
}
