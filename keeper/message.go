package keeper

import (
	"fmt"
	"strings"
	"time"
)

// The versions of the protocol that this program speaks. Both sides say theirs and use the highest that both know.
//
//	1: hello, start, stop, continue, end, taken, retire; the event exit
//	2: timeout, which changes how long a command may run
const (
	oldestProtocol = 1
	newestProtocol = 2
)

// verb is what a request asks for.
type verb string

const (
	verbHello    verb = "hello"    // the first of a connection
	verbStart    verb = "start"    // has a descriptor: the output
	verbStop     verb = "stop"     //
	verbContinue verb = "continue" //
	verbEnd      verb = "end"      //
	verbTimeout  verb = "timeout"  // since version 2
	verbTaken    verb = "taken"    // the exit is written down: forget the command
	verbRetire   verb = "retire"   // take no new commands and end with the last one
)

// request is what a daemon sends. Each one is answered under its number; starts are carried out one after another, and others may be
// answered before them.
type request struct {
	Number  uint64        `json:"number"`
	Verb    verb          `json:"verb"`
	Key     *Key          `json:"key,omitempty"`
	Hello   *hello        `json:"hello,omitempty"`
	Start   *order        `json:"start,omitempty"`
	Cause   string        `json:"cause,omitempty"`
	Timeout time.Duration `json:"timeout_ns,omitempty"`
}

// refusal says why a request was not carried out.
type refusal string

const (
	refusedFailed   refusal = "failed"   // it was tried
	refusedUnknown  refusal = "unknown"  // no such command here, or no such verb
	refusedEnded    refusal = "ended"    // the command has ended or is being ended
	refusedRetiring refusal = "retiring" // no new commands here
	refusedScarce   refusal = "scarce"   // the keeper has too many files open: it may be tried again
	refusedReplaced refusal = "replaced" // another daemon has come since: this one is not listened to any more
)

// message is what a keeper sends: an answer, or an event, which has number 0 and an exit or the last word.
type message struct {
	Number  uint64   `json:"number,omitempty"`
	Refusal refusal  `json:"refusal,omitempty"`
	Error   string   `json:"error,omitempty"`
	Welcome *welcome `json:"welcome,omitempty"`
	Command *command `json:"command,omitempty"`
	Exit    *Report  `json:"exit,omitempty"`
	Bye     bool     `json:"bye,omitempty"` // the keeper ends in order: what it has not answered it has not carried out
}

// hello says who calls. A keeper listens to one daemon at a time, the one that came last: Instance tells a daemon that connects
// again from the next one.
type hello struct {
	Oldest   int    `json:"oldest"`
	Newest   int    `json:"newest"`
	Build    string `json:"build"`
	Instance string `json:"instance"`
}

// welcome says who answers, and everything that is in its hands.
type welcome struct {
	Protocol int       `json:"protocol"` // that of the connection
	Build    string    `json:"build"`
	Number   int       `json:"number"` // N of keeper-N.sock
	Retiring bool      `json:"retiring,omitempty"`
	Commands []command `json:"commands"`
}

// ended notes an end that was told before the list came.
func (w *welcome) ended(exit *Report) {
	for i := range w.Commands {
		if w.Commands[i].Key == exit.Key && w.Commands[i].Exit == nil {
			w.Commands[i].Exit = exit
		}
	}
}

// command is a command in the hands of a keeper.
type command struct {
	Key       Key           `json:"key"`
	PID       int           `json:"pid"`
	StartedAt time.Time     `json:"started_at"`
	Stopped   bool          `json:"stopped,omitempty"`
	Adopted   bool          `json:"adopted,omitempty"` // it was there before the start that is answered
	Grace     time.Duration `json:"grace_ns"`
	Mark      packed        `json:"mark,omitempty"`
	Report    string        `json:"report,omitempty"`
	Label     []byte        `json:"label,omitempty"`
	Exit      *Report       `json:"exit,omitempty"` // it has ended, and nobody has taken that
}

// order is a Command on its way. Texts are bytes to the system, and need not be text to JSON.
type order struct {
	Args       packed        `json:"args"`
	Dir        []byte        `json:"dir"`
	Env        packed        `json:"env"`
	Mark       packed        `json:"mark,omitempty"`
	Grace      time.Duration `json:"grace_ns"`
	Timeout    time.Duration `json:"timeout_ns,omitempty"`
	ScanOnExit bool          `json:"scan_on_exit,omitempty"`
	Report     string        `json:"report,omitempty"`
	Label      []byte        `json:"label,omitempty"`
}

// packed is a list of texts without NUL, each followed by one.
type packed []byte

func pack(texts []string) packed {
	size := 0
	for _, t := range texts {
		size += len(t) + 1
	}
	out := make(packed, 0, size)
	for _, t := range texts {
		out = append(append(out, t...), 0)
	}
	return out
}

func (p packed) unpack() ([]string, error) {
	if len(p) == 0 {
		return nil, nil
	}
	if p[len(p)-1] != 0 {
		return nil, fmt.Errorf("%w: a list without an end", errFrame)
	}
	return strings.Split(string(p[:len(p)-1]), "\x00"), nil
}

func (o *order) command() (c Command, err error) {
	c = Command{Dir: string(o.Dir), Grace: o.Grace, Timeout: o.Timeout, ScanOnExit: o.ScanOnExit, Report: o.Report, Label: string(o.Label)}
	for _, list := range []struct {
		from packed
		to   *[]string
	}{{o.Args, &c.Args}, {o.Env, &c.Env}, {o.Mark, &c.Mark}} {
		if *list.to, err = list.from.unpack(); err != nil {
			return c, err
		}
	}
	return c, nil
}
