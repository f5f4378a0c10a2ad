package keeper

import (
	"log/slog"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Options configure a keeper process. Dir is required.
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
	// of its own and with orders on standard input. Without it, processes that commands have
	// started in sessions of their own outlive a killed keeper until a daemon notices its death.
	Warden []string
	// Logger receives warnings and errors; nil discards them.
	Logger *slog.Logger
	// Ready is called once, with the number of the keeper, when it listens; may be nil.
	Ready func(number int)

	// protocol is the newest version to speak; 0 means newestProtocol.
	protocol int
	// shutdownReportTimeout and orphanedReportTimeout are how long failing writes of exit reports
	// are retried; 0 means the constant of the same name.
	shutdownReportTimeout, orphanedReportTimeout time.Duration
}
