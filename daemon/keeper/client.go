package keeper

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/machine"
)

// errReplacedHere means that the request comes from a daemon that a later one has replaced.
var errReplacedHere = errors.New("another daemon has come since")

// client is the connection of a daemon to this keeper.
type client struct {
	*channel

	number   uint64 // in the order in which daemons connected
	protocol int    // set by greet
	gone     chan struct{}

	mu            sync.Mutex
	pendingStarts map[uint64]chan bool // starts that wait for confirmation
}

// daemons are the connections of daemons to this keeper. The latest is the current one: requests of all others are
// dropped. The lock of the server guards them.
type daemons struct {
	connected map[*client]struct{}
	instance  string          // of the current daemon
	heard     uint64          // client.number of the current daemon
	replaced  map[string]bool // the instances of earlier daemons
}

// admit makes c the current daemon and disconnects all others. It refuses a daemon that a later one has replaced.
func (d *daemons) admit(c *client, instance string) error {
	if d.replaced[instance] || c.number < d.heard {
		return errReplacedHere // the connection of a killed daemon may be read after that of its successor
	}
	if d.instance != instance {
		d.replaced[d.instance] = true
	}
	d.instance, d.heard = instance, c.number
	for other := range d.connected {
		_ = other.Close() // its reader sees that
	}
	d.connected[c] = struct{}{}
	return nil
}

func (d *daemons) isCurrent(c *client) bool { return c.number == d.heard }

// confirmStart asks the daemon whether it still wants a start: the order may have waited for a long
// time, and the daemon may have died since. A keeper that is shutting down (ends is closed) does
// not wait for the answer.
func (c *client) confirmStart(number uint64, ends <-chan struct{}) bool {
	if c.protocol < 3 {
		return true
	}
	answer := make(chan bool, 1)
	c.mu.Lock()
	c.pendingStarts[number] = answer
	c.mu.Unlock()
	c.notify(message{Number: number, ConfirmStart: true})
	select {
	case wanted := <-answer:
		return wanted
	case <-c.gone:
	case <-ends:
	}
	return false
}

// startConfirmed passes the daemon's answer on to the start that waits for it.
func (c *client) startConfirmed(number uint64, wanted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if answer := c.pendingStarts[number]; answer != nil {
		delete(c.pendingStarts, number)
		answer <- wanted
	}
}

// answer sends the answer to a request; requests with number 0 have none.
func (c *client) answer(number uint64, m message) {
	if number == 0 {
		return
	}
	m.Number = number
	c.notify(m)
}

// notify sends a message. When that fails, the daemon is disconnected; it asks again when it
// reconnects.
func (c *client) notify(m message) {
	if err := c.send(m, nil); err != nil {
		_ = c.Close() // its reader sees that
	}
}

// serveClient carries out a daemon's requests until it disconnects.
func (s *server) serveClient(c *client) {
	err := s.receiveAll(c)
	close(c.gone)
	c.close()
	s.mu.Lock()
	delete(s.daemons.connected, c)
	s.unsaved = s.unsaved || len(s.daemons.connected) == 0 // reports that no daemon acknowledged must be made durable now
	s.mu.Unlock()
	s.poke()
	if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, errReplacedHere) {
		s.logger.Warn("connection ended", "error", err)
	}
}

// receiveAll carries out requests and returns why the connection ended.
func (s *server) receiveAll(c *client) error {
	var first request
	if err := c.receive(&first); err != nil {
		return err
	}
	if err := s.greet(c, &first); err != nil {
		return err
	}
	for {
		var r request
		if err := c.receive(&r); err != nil {
			return err
		}
		if err := s.handleRequest(c, &r); err != nil {
			return err
		}
	}
}

// greet answers the first request of a connection.
func (s *server) greet(c *client, r *request) error {
	if r.Verb != verbHello || r.Hello == nil {
		return fmt.Errorf("%w: it begins with %q", errFrame, r.Verb)
	}
	protocol := min(r.Hello.Newest, s.protocol)
	if protocol < max(r.Hello.Oldest, oldestProtocol) {
		err := fmt.Errorf("a daemon speaks the protocol from %d to %d, this keeper from %d to %d", r.Hello.Oldest,
			r.Hello.Newest, oldestProtocol, s.protocol)
		c.answer(r.Number, message{Refusal: refusedUnknown, Error: err.Error()})
		return err
	}
	w, err := s.admit(c, r.Hello.Instance)
	if errors.Is(err, errReplacedHere) {
		c.answer(r.Number, message{Refusal: refusedReplaced, Error: err.Error()})
	}
	if err != nil {
		return err
	}
	w.Protocol, c.protocol = protocol, protocol
	c.answer(r.Number, message{Welcome: w})
	return nil
}

// admit makes c the current daemon and lists the commands of this keeper.
//
// Unread requests of an earlier daemon are dropped: that daemon was killed, and a start carried out
// after the list was made would run beside the next run of the same operation. For the same reason
// the list is made only when no start is under way.
func (s *server) admit(c *client, instance string) (*welcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil, net.ErrClosed
	}
	if err := s.daemons.admit(c, instance); err != nil {
		return nil, err
	}
	for len(s.starting) > 0 && s.daemons.isCurrent(c) {
		s.started.Wait()
	}
	if !s.daemons.isCurrent(c) {
		return nil, errReplacedHere
	}
	w := &welcome{Build: s.Build, Retiring: s.retiring, Commands: make([]command, 0, len(s.commands))}
	for _, h := range s.commands {
		w.Commands = append(w.Commands, h.command)
	}
	return w, nil
}

// handleRequest carries out one request. An error ends the connection.
func (s *server) handleRequest(c *client, r *request) error {
	s.mu.Lock()
	current := s.daemons.isCurrent(c)
	s.mu.Unlock()
	if !current {
		return errReplacedHere
	}
	switch r.Verb {
	case verbStart:
		return s.queueStart(c, r)
	case verbRetire:
		s.mu.Lock()
		s.retiring = true
		s.mu.Unlock()
		s.poke()
		c.answer(r.Number, message{})
		return nil
	case verbBegin:
		c.startConfirmed(r.Number, r.Wanted)
		return nil
	case verbTaken:
		s.forget(r.Key)
		c.answer(r.Number, message{})
		return nil
	case verbStop, verbContinue, verbEnd:
		c.answer(r.Number, s.signal(r))
		return nil
	case verbHello:
	}
	c.answer(r.Number, message{Refusal: refusedUnknown, Error: fmt.Sprintf("this keeper does not know %q", r.Verb)})
	return nil
}

func (s *server) queueStart(c *client, r *request) error {
	output, err := c.file()
	if err != nil {
		return err
	}
	if r.Start == nil || r.Key.Operation == "" {
		return errors.Join(fmt.Errorf("%w: a start that says not what", errFrame), output.Close())
	}
	cmd := r.Start.Command
	cmd.Dir, cmd.Label, cmd.Output = string(r.Start.Dir), string(r.Start.Label), output
	if cmd.Report != "" {
		err = statefs.CheckExitName(cmd.Report)
	}
	if err == nil && len(cmd.Args) == 0 {
		err = errors.New("no program is given")
	}
	if err != nil {
		c.answer(r.Number, message{Refusal: refusedFailed, Error: err.Error()})
		return output.Close()
	}
	// In a goroutine, beside other requests: the program may be on a disk that does not answer.
	s.group.Go(func() { s.begin(c, r.Number, r.Key, &cmd) })
	return nil
}

// signal carries out a request that concerns one command.
func (s *server) signal(r *request) message {
	s.mu.Lock()
	h := s.commands[r.Key]
	s.mu.Unlock()
	if h == nil {
		return message{Refusal: refusedUnknown, Error: "this keeper has no such command"}
	}
	var err error
	switch r.Verb {
	case verbStop:
		err = h.process.Stop()
	case verbContinue:
		err = h.process.Continue()
	case verbEnd:
		if r.Force {
			h.process.Kill(r.Cause)
		} else {
			h.process.End(r.Cause)
		}
	case verbHello, verbStart, verbBegin, verbTaken, verbRetire:
	}
	if err != nil {
		return message{Refusal: refusalOf(err), Error: err.Error()}
	}
	return message{}
}

func refusalOf(err error) refusal {
	switch {
	case errors.Is(err, ErrEnded):
		return refusedEnded
	case errors.Is(err, errRetiring):
		return refusedRetiring
	case errors.Is(err, errReplacedHere):
		return refusedReplaced
	case errors.Is(err, ErrUnwanted):
		return refusedUnwanted
	case machine.OutOfFiles(err):
		return refusedExhausted
	}
	return refusedFailed
}

// forget drops a command after the daemon has recorded its end.
func (s *server) forget(key Key) {
	s.mu.Lock()
	h := s.commands[key]
	ended := h != nil && h.Exit != nil
	if ended {
		delete(s.commands, key)
	}
	s.mu.Unlock()
	if ended {
		s.removeReport(h)
	}
	s.poke()
}
