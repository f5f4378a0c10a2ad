package main

import (
	"context"
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// batch is how many entries are asked for at a time.
const batch = 10

// defaultBucket is that of entries which name none.
const defaultBucket = "videos"

// source is runner_db.runner_predictions, which is only read.
type source struct{ c *mongo.Collection }

// entry is a finished prediction.
type entry struct {
	ID         bson.RawValue `bson:"_id"`
	Bucket     bson.RawValue `bson:"bucket"`
	Prediction bson.RawValue `bson:"prediction"`
}

// complete reports whether there is a prediction: null, an empty document, array or string is none.
func (e entry) complete() bool {
	switch p := e.Prediction; p.Type {
	case bson.TypeNull, bson.TypeUndefined:
		return false
	case bson.TypeEmbeddedDocument, bson.TypeArray:
		elements, err := bson.Raw(p.Value).Elements() // an array is a document with numbers as names
		return err != nil || len(elements) > 0        // what cannot be read is an error of the entry
	case bson.TypeString:
		return p.StringValue() != ""
	default:
		return !p.IsZero()
	}
}

const predictable = "predictable"

// kinds are the types that an _id may have, each by its least value: a database compares an _id only with those of
// one type, so that each has a way of its own through the source.
var kinds = []any{"", bson.ObjectID{}, int64(math.MinInt64)}

// otherKinds finds what none of the kinds finds.
var otherKinds = bson.D{{Key: "$not", Value: bson.D{{Key: "$type", Value: bson.A{"string", "objectId", "number"}}}}}

// page returns the next ten _ids of a kind, behind the last one. Fewer than ten are the end.
func (s source) page(ctx context.Context, kind any, last *bson.RawValue) ([]bson.RawValue, error) {
	where := bson.D{{Key: "$gte", Value: kind}}
	if last != nil {
		where = bson.D{{Key: "$gt", Value: *last}}
	}
	return s.ids(ctx, where)
}

// strange returns ten _ids at most that are of no kind which can be stored.
func (s source) strange(ctx context.Context) ([]bson.RawValue, error) { return s.ids(ctx, otherKinds) }

func (s source) ids(ctx context.Context, where bson.D) ([]bson.RawValue, error) {
	filter := bson.D{{Key: "status", Value: predictable}, {Key: "_id", Value: where}}
	cursor, err := s.c.Find(ctx, filter, options.Find().
		SetSort(bson.D{{Key: "_id", Value: 1}}).SetLimit(batch).SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return nil, err
	}
	var found []entry
	if err := cursor.All(ctx, &found); err != nil {
		return nil, err
	}
	ids := make([]bson.RawValue, len(found))
	for i, e := range found {
		ids[i] = e.ID
	}
	return ids, nil
}

// entries returns those of the _ids that are still predictable.
func (s source) entries(ctx context.Context, ids []bson.RawValue) ([]entry, error) {
	filter := bson.D{{Key: "status", Value: predictable}, {Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}
	cursor, err := s.c.Find(ctx, filter, options.Find().
		SetProjection(bson.D{{Key: "bucket", Value: 1}, {Key: "prediction", Value: 1}}))
	if err != nil {
		return nil, err
	}
	var found []entry
	return found, cursor.All(ctx, &found)
}
