package front

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
)

// Server serves a table of routes.
type Server struct {
	shared
	routers *routers
}

// New prepares a server.
func New(c Config) (*Server, error) {
	tokens, err := newTokens(c.Tokens)
	if err != nil {
		return nil, err
	}
	c.Limits = c.Limits.withDefaults()
	return &Server{
		shared:  shared{config: c, guard: newGuard(c.Hosts, tokens), confirms: newConfirmer()},
		routers: newRouters(c.Routes),
	}, nil
}

// Drain makes Request.Draining true, for handlers that start something.
func (s *Server) Drain() { s.draining.Store(true) }

// Serve accepts connections on all listeners until ctx ends, and closes them. It then ends the contexts of the open
// requests, waits up to Limits.Stop for their answers, cuts off the rest, and returns when every goroutine has ended:
// nil, or the error that stopped it.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	if err := s.CheckListeners(listeners); err != nil {
		for _, l := range listeners {
			err = errors.Join(err, l.Close())
		}
		return err
	}
	base, endRequests := context.WithCancelCause(context.WithoutCancel(ctx))
	defer endRequests(nil)
	s.base = base
	var connections sync.WaitGroup
	server := &http.Server{
		Handler: s, BaseContext: func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: s.config.Limits.Header, IdleTimeout: s.config.Limits.Idle, MaxHeaderBytes: MaxRequest,
		ErrorLog:    slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelDebug),
		ConnState:   trackConnections(&connections),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		// net/http would answer OPTIONS * without the guard.
		DisableGeneralOptionsHandler: true,
	}
	failed := make(chan error, len(listeners))
	limiter := &connLimiter{
		quota: s.config.Quota, refusal: s.config.Refusal, rejecting: make(chan struct{}, maxRejecting), running: &connections,
	}
	defer limiter.memory.stop()
	defer limiter.closeSpare()
	var serving sync.WaitGroup
	for _, l := range listeners {
		serving.Go(func() {
			if err := server.Serve(listener{l, limiter}); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serve on %s: %w", l.Addr(), err)
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.Drain()
	endRequests(s.config.Stopped)
	err = errors.Join(err, s.stop(context.WithoutCancel(ctx), server))
	serving.Wait()
	connections.Wait()
	s.hijacked.Wait()
	return err
}

// stop waits for the answers that are under way, and closes the connections of slow ones.
func (s *Server) stop(ctx context.Context, server *http.Server) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.Limits.Stop)
	defer cancel()
	if err := server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return server.Close()
}

// trackConnections returns a hook that counts each connection from its first state to its last, so that Serve can wait
// for all of them. net/http calls it for a new connection before its goroutine exists. A new or idle connection waits
// for a head; of an active one a whole head has been read.
func trackConnections(open *sync.WaitGroup) func(net.Conn, http.ConnState) {
	return func(c net.Conn, state http.ConnState) {
		own, ok := c.(*conn)
		switch {
		case !ok:
		case state == http.StateNew || state == http.StateIdle:
			own.headBytes.Store(0)
			own.hasRequestLine.Store(false)
			own.handled.Store(false)
		default:
			own.headBytes.Store(inHandler)
		}
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed, http.StateHijacked:
			open.Done()
		case http.StateActive, http.StateIdle:
		}
	}
}

// CheckListeners refuses to serve other machines without authentication, unless Insecure is set.
func (s *Server) CheckListeners(listeners []net.Listener) error {
	if len(listeners) == 0 {
		return errors.New("serve: no address to listen on")
	}
	if s.config.Insecure || len(s.guard.tokens) > 0 {
		return nil
	}
	for _, l := range listeners {
		if at, ok := l.Addr().(*net.TCPAddr); ok && !at.IP.IsLoopback() {
			return fmt.Errorf("listen on %s: other machines can reach it, so it needs a token (--token-file) or an explicit --insecure", at)
		}
	}
	return nil
}
