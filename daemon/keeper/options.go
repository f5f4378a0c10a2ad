package keeper

import (
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Options configure a keeper process. Dir and Warden are required.
type Options struct {
	// Dir is the storage directory.
	Dir string
	// Build identifies the program as exactly as possible: a daemon of another build gives this
	// keeper no new commands.
	Build string
	// Durability is that of the exit reports; default statefs.Power.
	Durability statefs.Durability
	// Idle is how long a keeper without commands waits for a daemon; default DefaultIdle.
	Idle time.Duration
	// Warden are the arguments with which the present program calls Warden, followed by arguments
	// of its own and with orders on standard input.
	Warden []string

	// protocol is the newest version to speak; 0 means newestProtocol.
	protocol int
	// shutdownReportTimeout and orphanedReportTimeout are how long failing writes of exit reports
	// are retried; 0 means the constant of the same name.
	shutdownReportTimeout, orphanedReportTimeout time.Duration
}

// PoolOptions configure how the keepers of a storage directory are found and started. Dir and
// Program are required.
type PoolOptions struct {
	// Dir is the storage directory.
	Dir string
	// Program is the argument list of the program that calls Main for Dir. When it serves, it
	// prints {"keeper":N} with its number on standard output. Other output is taken as the reason
	// why it does not serve.
	Program []string
	// Executable is the file to execute; the default is Program[0], which must then be a path.
	Executable string
	// Build identifies this program; see Options.
	Build string
	// Logger receives which keepers are found, started and lost; nil discards it.
	Logger *slog.Logger
	// SilenceTimeout is how long a keeper may take to answer before it counts as silent; default
	// 5 s. Open does not wait that long for a keeper that is stopped.
	SilenceTimeout time.Duration
}

// HeldCommand is a command of a living keeper.
type HeldCommand struct {
	Key Key
	PID int
	// Label is that of the Command that was started.
	Label string
	// Ended means that the command has ended: Start with its key returns the known end.
	Ended bool
}

// SilentKeeper is a keeper that does not answer.
type SilentKeeper struct {
	Keeper int
	PID    int
	Since  time.Time
}

// announcement is what a new keeper prints when it serves.
type announcement struct {
	Keeper int `json:"keeper"`
}

// ownPrefix begins the names of a daemon's settings and secrets, and of the marks of commands. A
// keeper's environment contains none of them.
const ownPrefix = "JOBDIR_"

func keeperEnviron() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, ownPrefix) })
}
