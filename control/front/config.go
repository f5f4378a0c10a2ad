package front

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
)

// Config configures a Server. Refusal, Fault and Quota are required.
type Config struct {
	// Routes are the routes; a path that begins with a :name matches what no other path begins with.
	Routes []Route
	// Hint completes the message for a path without a route.
	Hint string
	// Refusal maps the errors of handlers to answers.
	Refusal func(error) *RefusalError
	// Fault is called with each error that is a fault of this program, before the answer.
	Fault func(error)
	// Quota wraps EMFILE when no descriptor may be used for another client.
	Quota func() error
	// Stopped is the cause with which the contexts of requests end when the server stops.
	Stopped error
	// Tokens, if there are any, are required on every connection except those of a unix socket.
	Tokens []Token
	// Hosts are further names of this server, as name or name:port. Loopback names and the listen addresses are always
	// accepted.
	Hosts []string
	// Insecure allows listening on non-loopback addresses without a token.
	Insecure bool
	Limits   Limits
	Logger   *slog.Logger
}

// shared is what every request of a server uses.
type shared struct {
	config   Config
	guard    *guard
	confirms *confirmer
	base     context.Context //nolint:containedctx // of all requests and streams; it ends with Serve
	hijacked sync.WaitGroup  // the connections that are taken from net/http and open
	draining atomic.Bool
	failures atomic.Uint64
}
