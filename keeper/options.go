package keeper

import (
	"log/slog"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Options say for what a keeper process serves. Dir is required.
type Options struct {
	// Dir is the storage directory.
	Dir string
	// Build names the program as exactly as can be: a daemon of another build gives this keeper no new commands.
	Build string
	// Durability is that of the exit reports; default statefs.Power.
	Durability statefs.Durability
	// Idle is how long a keeper without commands waits for a daemon; default DefaultIdle.
	Idle time.Duration
	// Warden are the arguments with which the present program calls Warden, with the arguments that follow and standard input. Without it what
	// commands have started in sessions of their own outlives a killed keeper, until a daemon finds that it is dead.
	Warden []string
	// Logger gets what goes wrong; nil discards it.
	Logger *slog.Logger
	// Ready is called once, with the number of the keeper, when it listens; may be nil.
	Ready func(number int)

	// protocol is the newest version that is spoken; 0 is the newest that is known.
	protocol int
	// farewell and forlorn are how long exit reports are tried that cannot be written; 0 is the constant of that name.
	farewell, forlorn time.Duration
}
