// Command event plays the programs that create the entries which outbox-s3 stores. It lets you try the
// example without a MongoDB shell:
//
//	event add ID              a document in the outbox, and an entry that has no prediction yet
//	event predict ID LABEL    the prediction
//	event show ID             the entry in the outbox
//
// It reads MONGO_URI and RUNNER_MONGO_URI as outbox-s3 does.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "event:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	outbox, err := collection(os.Getenv("MONGO_URI"), "main_db", "outbox")
	if err != nil {
		return err
	}
	source, err := collection(cmp.Or(os.Getenv("RUNNER_MONGO_URI"), os.Getenv("MONGO_URI")), "runner_db",
		"runner_predictions")
	if err != nil {
		return err
	}
	switch {
	case len(args) == 2 && args[0] == "add":
		if _, err := outbox.InsertOne(ctx, bson.D{
			{Key: "_id", Value: args[1]},
			{Key: "status", Value: "pending"},
		}); err != nil {
			return err
		}
		_, err = source.InsertOne(ctx, bson.D{{Key: "_id", Value: args[1]}, {Key: "status", Value: "predictable"}})
		return err
	case len(args) == 3 && args[0] == "predict":
		prediction := bson.D{{Key: "label", Value: args[2]}, {Key: "score", Value: 0.93}}
		result, err := source.UpdateOne(ctx, bson.D{{Key: "_id", Value: args[1]}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "prediction", Value: prediction}}}})
		if err == nil && result.MatchedCount == 0 {
			err = fmt.Errorf("there is no entry %q; 'event add %[1]s' makes it", args[1])
		}
		return err
	case len(args) == 2 && args[0] == "show":
		var doc bson.D
		if err := outbox.FindOne(ctx, bson.D{{Key: "_id", Value: args[1]}}).Decode(&doc); err != nil {
			return err
		}
		text, err := bson.MarshalExtJSONIndent(doc, false, false, "", "  ")
		fmt.Println(string(text))
		return err
	}
	return fmt.Errorf("want add ID, predict ID LABEL or show ID, got %q", args)
}

func collection(uri, db, name string) (*mongo.Collection, error) {
	if uri == "" {
		return nil, errors.New("MONGO_URI is not set")
	}
	c, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return nil, err
	}
	return c.Database(db).Collection(name), nil
}
