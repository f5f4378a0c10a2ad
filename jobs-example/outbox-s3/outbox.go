package main

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// outbox is main_db.outbox. Its documents are made by others and marked here.
type outbox struct{ c *mongo.Collection }

const predicted = "predicted"

// errMissing says that the outbox has no document of an _id.
var errMissing = errors.New("main_db.outbox has no document with this _id")

// statuses returns what the documents of those _ids say, by their keys. An _id that has no document is not among them.
func (o outbox) statuses(ctx context.Context, ids []bson.RawValue) (map[string]string, error) {
	filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}
	cursor, err := o.c.Find(ctx, filter, options.Find().SetProjection(bson.D{{Key: "status", Value: 1}}))
	if err != nil {
		return nil, err
	}
	var found []struct {
		ID     bson.RawValue `bson:"_id"`
		Status bson.RawValue `bson:"status"`
	}
	if err := cursor.All(ctx, &found); err != nil {
		return nil, err
	}
	statuses := make(map[string]string, len(found))
	for _, doc := range found {
		statuses[key(doc.ID)], _ = doc.Status.StringValueOK()
	}
	return statuses, nil
}

// stored reports whether the document of an _id says that it is stored: other workers are at it too.
func (o outbox) stored(ctx context.Context, id bson.RawValue) (bool, error) {
	var doc struct {
		Status bson.RawValue `bson:"status"`
	}
	err := o.c.FindOne(ctx, bson.D{{Key: "_id", Value: id}},
		options.FindOne().SetProjection(bson.D{{Key: "status", Value: 1}})).Decode(&doc)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return false, errMissing
	}
	status, _ := doc.Status.StringValueOK()
	return status == predicted, err
}

// mark notes that an object is stored, unless another worker was faster. It changes one document by one command, and
// needs no more of the server than that; an update that a server loses is found by the next look at the entry.
func (o outbox) mark(ctx context.Context, id bson.RawValue, bucket, object string) error {
	filter := bson.D{{Key: "_id", Value: id}, {Key: "status", Value: bson.D{{Key: "$ne", Value: predicted}}}}
	set := bson.D{{Key: "$set", Value: bson.D{
		{Key: "status", Value: predicted},
		{Key: "predicted_at", Value: time.Now()},
		{Key: "output_s3", Value: bson.D{{Key: "bucket", Value: bucket}, {Key: "object", Value: object}}},
	}}}
	result, err := o.c.UpdateOne(ctx, filter, set)
	var refused mongo.WriteException
	switch {
	case errors.As(err, &refused) && refused.WriteConcernError == nil && len(refused.WriteErrors) > 0:
		return &refusal{err}
	case err != nil:
		return err
	case result.MatchedCount > 0:
		return nil
	}
	_, err = o.stored(ctx, id) // another worker marked it, or it was removed
	return err
}
