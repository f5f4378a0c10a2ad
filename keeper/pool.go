package keeper

import (
	"log/slog"
	"time"
)

// PoolOptions say how the keepers of a storage directory are found and started. Dir and Program are required.
type PoolOptions struct {
	// Dir is the storage directory.
	Dir string
	// Program is the argument list of the program that calls Serve for Dir. It says {"keeper":N} on standard output when it serves,
	// with its number, and otherwise what is wrong.
	Program []string
	// Executable is the file that is executed; default Program[0], which is then a path.
	Executable string
	// Build names this program; see Options.
	Build string
	// Logger gets what is found and started; nil discards it.
	Logger *slog.Logger

	// newest is the newest version of the protocol that is spoken; 0 is the newest that is known.
	newest int
}

// Held is a command in the hands of a living keeper.
type Held struct {
	Key Key
	PID int
	// Label is what the start has said of it.
	Label string
	// Ended says that it has ended: Start with its key gets what is known of that.
	Ended bool
}

// Silence is a keeper that does not answer.
type Silence struct {
	Keeper int
	PID    int
	Since  time.Time
}

// announcement is what a keeper that was started says when it serves.
type announcement struct {
	Keeper int `json:"keeper"`
}
