package control

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// When the limit of open files is nearly reached, a connection that is let in would take a descriptor from the work that is under way,
// and one that is not accepted waits without a word. So it is accepted, told why, and closed.

// turnedAwayAtOnce bounds how many are told at the same time: each takes a descriptor meanwhile.
const turnedAwayAtOnce = 2

// crowd turns clients away.
type crowd struct {
	room func() error // an error that wraps EMFILE when there is none
	away chan struct{}
	all  *sync.WaitGroup
}

func newCrowd(room func() error, all *sync.WaitGroup) *crowd {
	return &crowd{room: room, away: make(chan struct{}, turnedAwayAtOnce), all: all}
}

// admit reports whether a connection may come in. One that may not is answered and closed.
func (c *crowd) admit(accepted *conn) bool {
	err := c.room()
	if !errors.Is(err, syscall.EMFILE) {
		return true
	}
	c.away <- struct{}{} // whoever comes next waits to be accepted
	c.all.Go(func() {
		defer func() { <-c.away }()
		accepted.turnAway(refusalOf(err).text)
	})
	return false
}

// hearOut is how long a client that is turned away may take to say what it wants: an answer that comes before its question is lost when
// the connection is closed with the question unread.
const hearOut = 100 * time.Millisecond

func (c *conn) turnAway(text string) {
	defer func() { _ = c.Close() }() // it has its answer, or is gone
	_ = c.SetReadDeadline(time.Now().Add(hearOut))
	head := make([]byte, 4096)
	linger := hearOut
	if n, _ := c.Conn.Read(head); n > 0 { // whatever it asks, the answer is the same
		linger = lingerTime
	}
	c.heard.Store(beingAnswered)
	c.lastWord(http.StatusServiceUnavailable, text, linger)
}

// listener wraps the connections it accepts. net/http closes a connection whose headers take too long without a word, and refuses
// what it cannot read in plain text; the client of a wrapped one gets a problem.
type listener struct {
	net.Listener
	crowd *crowd
}

func (l listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if accepted := (&conn{Conn: c}); l.crowd.admit(accepted) {
			return accepted, nil
		}
	}
}
