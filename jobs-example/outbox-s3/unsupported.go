package main

import (
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// passing are the codes of MongoDB by which a server says that it cannot answer now: it starts, stops, or another one
// took over.
var passing = []int{6, 7, 89, 91, 189, 262, 286, 9001, 10107, 11600, 11602, 13435, 13436}

// unsupported reports whether a server answered that there are no change streams for us: it has none, is not a member
// of a replica set, or does not let this user read them. A server that did not answer is lost instead.
func unsupported(err error) bool {
	var answer mongo.CommandError
	return errors.As(err, &answer) && !mongo.IsNetworkError(err) && !mongo.IsTimeout(err) && answer.Code != 0 &&
		!answer.HasErrorLabel("ResumableChangeStreamError") && !slices.Contains(passing, int(answer.Code))
}
