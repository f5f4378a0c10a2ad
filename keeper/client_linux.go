package keeper

import (
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/jobdir/jobdir/statefs"
)

// errRetiring says that a keeper takes no new commands.
var errRetiring = errors.New("this keeper takes no new commands")

// errReplacedHere says that a daemon asks for something and another one has come since.
var errReplacedHere = errors.New("another daemon has come since")

// client is the connection of a daemon to this keeper.
type client struct {
	*channel

	number uint64 // in the order in which they came
}

// answer sends an answer, unless none is wanted.
func (c *client) answer(number uint64, m message) {
	if number == 0 {
		return
	}
	m.Number = number
	c.tell(m)
}

// tell sends a message. A daemon that cannot be told is disconnected: it asks again when it comes back.
func (c *client) tell(m message) {
	if err := c.send(m, nil); err != nil {
		_ = c.Close() // its reader sees that
	}
}

// talk carries out what a daemon asks for until it goes away.
func (s *server) talk(c *client) {
	err := s.listen(c)
	c.close()
	s.mu.Lock()
	delete(s.clients, c)
	s.unsaved = s.unsaved || len(s.clients) == 0 // what it did not take has to be made durable now
	s.mu.Unlock()
	s.poke()
	if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, errReplacedHere) {
		s.Logger.Warn("connection ended", "error", err)
	}
}

// listen returns why the connection ended.
func (s *server) listen(c *client) error {
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
		if err := s.carryOut(c, &r); err != nil {
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
		err := fmt.Errorf("a daemon speaks the protocol from %d to %d, this keeper from %d to %d", r.Hello.Oldest, r.Hello.Newest, oldestProtocol, s.protocol)
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
	w.Protocol = protocol
	c.answer(r.Number, message{Welcome: w})
	return nil
}

// admit makes c the daemon that is listened to, and lists what is in the hands of this keeper.
//
// What an earlier daemon has sent and nobody has read yet is dropped: it was killed, and a start of its that was carried out after
// the list was made would run beside the next run of the same operation. For the same reason the list is made when nothing is being
// started any more.
func (s *server) admit(c *client, instance string) (*welcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil, net.ErrClosed
	}
	if s.replaced[instance] || c.number < s.heard {
		return nil, errReplacedHere // one that was killed may be heard after the one that came later
	}
	if s.instance != instance {
		s.replaced[s.instance] = true
	}
	s.instance, s.heard = instance, c.number
	for other := range s.clients {
		_ = other.Close() // its reader sees that
	}
	s.clients[c] = struct{}{}
	for len(s.starting) > 0 && c.number == s.heard {
		for _, begun := range s.starting {
			s.mu.Unlock()
			<-begun
			s.mu.Lock()
			break
		}
	}
	if c.number != s.heard {
		return nil, errReplacedHere
	}
	w := &welcome{Build: s.Build, Number: s.number, Retiring: s.retiring, Commands: make([]command, 0, len(s.held))}
	for _, h := range s.held {
		w.Commands = append(w.Commands, h.describeLocked())
	}
	return w, nil
}

// heeded reports whether c is the daemon that is listened to.
func (s *server) heeded(c *client) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.number == s.heard
}

// carryOut carries out one request. An error ends the connection.
func (s *server) carryOut(c *client, r *request) error {
	if !s.heeded(c) {
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
	case verbTaken:
		s.forget(r.Key)
		c.answer(r.Number, message{})
		return nil
	case verbStop, verbContinue, verbEnd, verbTimeout:
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
	if r.Key == nil || r.Start == nil || r.Key.Operation == "" {
		return errors.Join(fmt.Errorf("%w: a start that says not what", errFrame), output.Close())
	}
	cmd, err := r.Start.command()
	if err == nil && cmd.Report != "" {
		err = statefs.CheckExitName(cmd.Report)
	}
	if err == nil && len(cmd.Args) == 0 {
		err = errors.New("no program is given")
	}
	if err != nil {
		c.answer(r.Number, message{Refusal: refusedFailed, Error: err.Error()})
		return output.Close()
	}
	cmd.Output = output
	// Beside what else is asked: the program may be on a disk that does not answer.
	s.group.Go(func() { s.begin(c, r.Number, *r.Key, &cmd) })
	return nil
}

// signal carries out what is asked of one command.
func (s *server) signal(r *request) message {
	var h *holding
	if r.Key != nil {
		s.mu.Lock()
		h = s.held[*r.Key]
		s.mu.Unlock()
	}
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
		h.process.End(r.Cause)
	case verbTimeout:
		if s.protocol < 2 {
			return message{Refusal: refusedUnknown, Error: "this keeper cannot change a timeout"}
		}
		err = h.process.SetTimeout(r.Timeout)
	case verbHello, verbStart, verbTaken, verbRetire:
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
	case statefs.OutOfFiles(err):
		return refusedScarce
	}
	return refusedFailed
}

// forget drops a command whose end was written down elsewhere.
func (s *server) forget(key *Key) {
	if key == nil {
		return
	}
	s.mu.Lock()
	h := s.held[*key]
	if h != nil && h.exit != nil {
		delete(s.held, *key)
	} else {
		h = nil
	}
	s.mu.Unlock()
	if h != nil {
		s.withdraw(h)
	}
	s.poke()
}
