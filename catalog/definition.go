package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/statefs/steps"
)

// FailWhen decides when failed items make the whole operation failed.
type FailWhen string

// The values of fail_when.
const (
	FailAny   FailWhen = "any"   // one failed item is enough
	FailAll   FailWhen = "all"   // every item failed
	FailNever FailWhen = "never" // failed items make the result partial (default)
)

// OnDisconnect decides what happens when the connection of the streaming GET that started an operation is
// closed.
type OnDisconnect string

// The values of on_disconnect.
const (
	DisconnectContinue OnDisconnect = "continue" // the work goes on (default)
	DisconnectCancel   OnDisconnect = "cancel"
	DisconnectPause    OnDisconnect = "pause"
)

// Restart decides what happens to running work when the daemon, the keeper or the machine fails.
type Restart string

// The values of restart.
const (
	RestartAdopt  Restart = "adopt"  // the next daemon adopts the command from the keeper (default of run)
	RestartResume Restart = "resume" // goes on at the first unfinished item (default of items and handlers)
	RestartRetry  Restart = "retry"  // a new run while attempts remain, else failed
	RestartFail   Restart = "fail"   // failed
)

// NoStall is the StallAfter of a job with stall_after: off: it is never shown as stalled.
const NoStall time.Duration = -1

// OnStall decides what happens to work that gave no sign of life for stall_after.
type OnStall string

// The values of on_stall; without one it is only shown.
const (
	StallCancel OnStall = "cancel" // the operation is cancelled
	StallRetry  OnStall = "retry"  // the run is ended and counts as an attempt that failed
)

// Work is the kind of work of a job.
type Work string

// The kinds of work.
const (
	WorkRun     Work = "run"     // one command
	WorkItems   Work = "items"   // the command once for each item
	WorkHandler Work = "handler" // a Go function of the program
	WorkSteps   Work = "steps"   // several of them, one after another
)

// EnvVar is one entry of env. Value may hold references.
type EnvVar struct {
	Name  string
	Value string
}

// Definition is one job. It is made by [Parse] only and never changes. The
// fields that may hold references are as written; [Definition.Command],
// [Definition.Environ] and [Definition.Folder] give them with values.
type Definition struct {
	Group   string
	Name    string
	Summary string
	Params  []param.Param // in the order of the file
	Tags    []string
	// Dir is where commands run and where relative item paths begin; "" is the
	// daemon's working directory.
	Dir string
	Env []EnvVar
	// Run is an argument vector; it is never given to a shell.
	Run          []string
	Items        *Items
	Parallel     int         // items at the same time, 1 to 256
	Handler      string      // registered name of a Go function
	MaxLog       param.Bytes // beyond it the run ends; 0 is no limit
	FailWhen     FailWhen
	OnDisconnect OnDisconnect
	Grace        time.Duration // SIGTERM to SIGKILL; 0 is the daemon's
	Timeout      time.Duration // of one attempt, paused time not counted; 0 is no limit
	StallAfter   time.Duration // without output and progress; 0 is the daemon's, NoStall no notice
	OnStall      OnStall       // "" only shows it
	QueueTimeout time.Duration // how long it may wait in the queue at a stretch; 0 is no limit
	Deadline     time.Duration // from submit to the end, waits and pauses included; 0 is no limit
	Retry        Retry
	ExitCodes    ExitCodes
	CrashLimit   CrashLimit
	Schedule     *Schedule // nil: the job does not start by itself
	restart      Restart   // as written

	Lane     string   // the queue it waits in; [statefs.DefaultLane] when the job names none
	Limits   []string // named semaphores that it takes at its start, in the order of the file
	Key      string   // as written, with references; [Definition.KeyFor] gives it with values; "" is no key
	KeyOrder KeyOrder
	Priority int // higher ones start first; a submit may give another one
	Unique   Unique
	Then     *Then       // nil: nothing follows
	Deliver  []*Delivery // in the order of the file

	Steps      []*Step // in the order in which they are done: each after all that it needs
	Milestones []Milestone

	hints    Problems
	warnings Problems
	// unsafeShell is "allow" if scripts may have references.
	unsafeShell string
	source      []byte
	at          Position
	handlerAt   Position
}

// Address is the job's address in URLs and on the command line: "group/name".
func (d *Definition) Address() string { return d.Group + "/" + d.Name }

// Endpoint is the endpoint name, the first part of IDs: "group-name".
func (d *Definition) Endpoint() string { return d.Group + "-" + d.Name }

// Work returns the kind of work.
func (d *Definition) Work() Work {
	switch {
	case d.Handler != "":
		return WorkHandler
	case d.Items != nil:
		return WorkItems
	case len(d.Steps) > 0:
		return WorkSteps
	}
	return WorkRun
}

// Restart returns what happens to interrupted work.
func (d *Definition) Restart() Restart {
	switch {
	case d.restart != "":
		return d.restart
	case d.Work() == WorkRun:
		return RestartAdopt
	}
	return RestartResume
}

// Source is the exact YAML text of the definition's document. Parse of it gives
// an equal definition. The caller must not change the bytes.
func (d *Definition) Source() []byte { return d.source }

// Hash is the SHA-256 of [Definition.Source] in hexadecimal.
func (d *Definition) Hash() string {
	sum := sha256.Sum256(d.source)
	return hex.EncodeToString(sum[:])
}

// Position is where the definition begins in its file.
func (d *Definition) Position() Position { return d.at }

// Param gives the parameter of that name, nil when there is none.
func (d *Definition) Param(name string) *param.Param {
	return steps.First(d.Params, func(p *param.Param) bool { return p.Name == name })
}

func (d *Definition) paramNames() (names []string) {
	for _, p := range d.Params {
		names = append(names, p.Name)
	}
	return names
}

// Command gives the argument vector with its references replaced, nil for a
// handler. Every element stays one argument.
func (d *Definition) Command(v Values) (args []string) {
	for _, a := range d.Run {
		args = append(args, Expand(a, v))
	}
	return args
}

// Environ gives env as NAME=value in the order of the file, references replaced.
// The parameters themselves come from [Params.Environ].
func (d *Definition) Environ(v Values) []string {
	env := make([]string, len(d.Env))
	for i, e := range d.Env {
		env[i] = e.Name + "=" + Expand(e.Value, v)
	}
	return env
}

// Folder gives dir with its references replaced; "" is the daemon's working
// directory.
func (d *Definition) Folder(v Values) string { return Expand(d.Dir, v) }

// KeyFor gives the key with its references replaced, "" when the job has none or when nothing is left of it. The
// error is a [*ParamError].
func (d *Definition) KeyFor(p Params) (string, error) {
	key := Expand(d.Key, Values{Params: p})
	if len(key) > MaxKey {
		return "", &ParamError{Reason: fmt.Sprintf("the key that the job makes of its parameters is longer than %d bytes",
			MaxKey)}
	}
	return key, nil
}

// Total returns the number of items if the parameters determine it, which is so for a range that uses no
// outputs of steps; else nil.
func (d *Definition) Total(p Params) *int64 {
	if d.Items == nil || d.Items.Range == nil {
		return nil
	}
	first, last, err := d.Items.Range.bounds(Values{Params: p})
	if err != nil {
		return nil
	}
	return new(max(0, last-first+1))
}
