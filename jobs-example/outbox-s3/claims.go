package main

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// claims is main_db.outbox_claims: which worker is at which entry. A document has the _id of the entry, so that of
// several workers one can insert it; it is removed behind the mark. The outbox itself is changed by the mark alone.
//
//	claim ──▶ object ──▶ mark ──▶ release
//	  │ the worker is killed: its next run has the claim; other workers take the claim over when it is over
type claims struct {
	c  *mongo.Collection
	by string // the worker
}

// claimedError says that another worker has claimed an entry until some time.
type claimedError struct{ until time.Time }

func (e *claimedError) Error() string {
	return "another worker has claimed it until " + e.until.Format(time.RFC3339)
}

type claim struct {
	ID    bson.RawValue `bson:"_id"`
	By    string        `bson:"by"`
	Until time.Time     `bson:"until"`
}

// clean removes what is left of runs that were killed behind the mark: claims of this worker, which has none under
// way, and all that are over.
func (c claims) clean(ctx context.Context) error {
	over := bson.D{{Key: "until", Value: bson.D{{Key: "$lt", Value: time.Now()}}}}
	_, err := c.c.DeleteMany(ctx, bson.D{{Key: "$or", Value: bson.A{bson.D{{Key: "by", Value: c.by}}, over}}})
	return err
}

// take claims an entry until the given time. The error is a [*claimedError] while another worker has it.
func (c claims) take(ctx context.Context, id bson.RawValue, until time.Time) error {
	for {
		_, err := c.c.InsertOne(ctx, claim{ID: id, By: c.by, Until: until})
		if !mongo.IsDuplicateKeyError(err) {
			return err
		}
		var held claim
		err = c.c.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Decode(&held)
		switch {
		case errors.Is(err, mongo.ErrNoDocuments):
			continue // it was released just now
		case err != nil:
			return err
		case held.By == c.by:
			return nil // of an earlier run, or the answer to our insert was lost
		case held.Until.After(time.Now()):
			return &claimedError{held.Until}
		}
		if _, err := c.c.DeleteOne(ctx, bson.D{
			{Key: "_id", Value: id},
			{Key: "by", Value: held.By},
			{Key: "until", Value: held.Until},
		}); err != nil {
			return err
		}
	}
}

// release gives a claim of the worker back. An error leaves a claim that is over in time.
func (c claims) release(ctx context.Context, id bson.RawValue) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = c.c.DeleteOne(ctx, bson.D{{Key: "_id", Value: id}, {Key: "by", Value: c.by}})
}
