package keeper

import (
	"errors"
	"time"
)

// The versions of the protocol that this program speaks. Both peers announce theirs and use the
// highest common version.
//
//	1: hello, start, stop, continue, end, taken, retire; the event exit
//	2: a request that is not used any more
//	3: the keeper asks before it starts a command, and begin answers
const (
	oldestProtocol = 1
	newestProtocol = 3
)

// verb is the kind of a request.
type verb string

const (
	verbHello    verb = "hello"    // the first of a connection
	verbStart    verb = "start"    // carries a descriptor: the output
	verbStop     verb = "stop"     //
	verbContinue verb = "continue" //
	verbEnd      verb = "end"      //
	// since version 3: reports whether the start with this number is still wanted; it has no answer
	// itself
	verbBegin  verb = "begin"
	verbTaken  verb = "taken"  // the end is recorded: forget the command
	verbRetire verb = "retire" // take no new commands, and exit with the last one
)

// request is what a daemon sends. Each one is answered under its number, and not always in the
// order of the requests: each start runs in a goroutine of its own.
type request struct {
	Number uint64 `json:"number"`
	Verb   verb   `json:"verb"`
	Key    Key    `json:"key,omitzero"`
	Hello  *hello `json:"hello,omitempty"`
	Start  *order `json:"start,omitempty"`
	Cause  string `json:"cause,omitempty"`
	Force  bool   `json:"force,omitempty"` // of an end: without a grace period; older keepers ignore it
	Wanted bool   `json:"wanted,omitempty"`
}

// refusal is the reason why a request was not carried out.
type refusal string

const (
	refusedFailed    refusal = "failed"   // tried, with an error
	refusedUnknown   refusal = "unknown"  // no such command here, or no such verb
	refusedEnded     refusal = "ended"    // the command has ended or is being ended
	refusedRetiring  refusal = "retiring" // this keeper takes no new commands
	refusedUnwanted  refusal = "unwanted" // the daemon no longer wanted the start when the keeper asked
	refusedExhausted refusal = "scarce"   // the keeper has too many files open: retry
	refusedReplaced  refusal = "replaced" // a later daemon has replaced this one
)

// errRetiring means that a keeper takes no new commands.
var errRetiring = errors.New("this keeper takes no new commands")

// message is what a keeper sends: an answer, a question about a start, or an event. An event has
// number 0 and either Exit or Bye.
type message struct {
	Number       uint64   `json:"number,omitempty"`
	Refusal      refusal  `json:"refusal,omitempty"`
	Error        string   `json:"error,omitempty"`
	Welcome      *welcome `json:"welcome,omitempty"`
	Command      *command `json:"command,omitempty"`
	Exit         *Report  `json:"exit,omitempty"`
	ConfirmStart bool     `json:"ask,omitempty"` // is the start with this number still wanted? Answered by begin
	// the keeper shuts down normally: requests without an answer were not carried out
	Bye bool `json:"bye,omitempty"`
}

// hello identifies the daemon. A keeper accepts one daemon at a time, the latest one; Instance
// distinguishes a reconnecting daemon from its successor.
type hello struct {
	Oldest   int    `json:"oldest"`
	Newest   int    `json:"newest"`
	Instance string `json:"instance"`
}

// welcome identifies the keeper and lists all its commands.
type welcome struct {
	Protocol int       `json:"protocol"` // that of the connection
	Build    string    `json:"build"`
	Retiring bool      `json:"retiring,omitempty"`
	Commands []command `json:"commands"`
}

// ended adds an end that was reported before the list arrived.
func (w *welcome) ended(exit *Report) {
	for i := range w.Commands {
		if w.Commands[i].Key == exit.Key && w.Commands[i].Exit == nil {
			w.Commands[i].Exit = exit
		}
	}
}

// command is a command of a keeper.
type command struct {
	Key    Key           `json:"key"`
	PID    int           `json:"pid"`
	Grace  time.Duration `json:"grace_ns"`
	Mark   texts         `json:"mark,omitempty"`
	Report string        `json:"report,omitempty"`
	Label  []byte        `json:"label,omitempty"`
	Exit   *Report       `json:"exit,omitempty"` // it has ended, and no daemon has acknowledged that
}

// order is the wire form of a Command. Its texts are arbitrary bytes, which JSON strings cannot
// carry; Key is that of the request.
type order struct {
	Command
	Dir   []byte `json:"dir"`
	Label []byte `json:"label,omitempty"`
}
