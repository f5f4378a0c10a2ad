package browsertest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
)

// conn speaks the DevTools protocol: JSON messages, each ended by a zero byte, on one pipe to the browser and one back.
type conn struct {
	out  *os.File
	in   *os.File
	done sync.WaitGroup

	mu       sync.Mutex
	last     int
	waiting  map[int]chan message
	sessions map[string]func(method string, params json.RawMessage)
	failed   error // why nothing can be asked any more
}

// errBrowserGone says that the browser has ended.
var errBrowserGone = errors.New("the browser has ended")

// message is what goes over the pipes, in both directions.
type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
		Data    string `json:"data"`
	} `json:"error,omitempty"`
}

func newConn(out, in *os.File) *conn {
	c := &conn{
		out: out, in: in, waiting: make(map[int]chan message),
		sessions: make(map[string]func(string, json.RawMessage)),
	}
	c.done.Go(c.read)
	return c
}

// read hands out what comes, until the browser is gone.
func (c *conn) read() {
	in := bufio.NewReader(c.in)
	for {
		data, err := in.ReadBytes(0)
		var m message
		if err == nil {
			err = json.Unmarshal(data[:len(data)-1], &m)
		}
		c.mu.Lock()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errBrowserGone
			}
			c.failed = err
			for id, answer := range c.waiting {
				close(answer)
				delete(c.waiting, id)
			}
			c.mu.Unlock()
			return
		}
		answer, heard := c.waiting[m.ID], c.sessions[m.Session]
		delete(c.waiting, m.ID)
		c.mu.Unlock()
		switch {
		case answer != nil:
			answer <- m
		case m.Method != "" && heard != nil:
			heard(m.Method, m.Params)
		}
	}
}

// hear has the events of a session handed to a function, which must not ask anything itself; nil ends that.
func (c *conn) hear(session string, heard func(method string, params json.RawMessage)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if heard == nil {
		delete(c.sessions, session)
	} else {
		c.sessions[session] = heard
	}
}

// call asks the browser, or a page by its session, and reads the answer into result, which may be nil.
func (c *conn) call(ctx context.Context, session, method string, params, result any) error {
	data, err := json.Marshal(params)
	if params == nil {
		data = nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	answer := make(chan message, 1)
	if err := c.send(message{Session: session, Method: method, Params: data}, answer); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			return fmt.Errorf("%s: %w", method, errBrowserGone)
		case m.Error != nil:
			return fmt.Errorf("%s: %s %s", method, m.Error.Message, m.Error.Data)
		case result != nil:
			return json.Unmarshal(m.Result, result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, ctx.Err())
	}
}

func (c *conn) send(m message, answer chan message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return c.failed
	}
	c.last++
	m.ID = c.last
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	c.waiting[m.ID] = answer
	if _, err := c.out.Write(append(data, 0)); err != nil {
		delete(c.waiting, m.ID)
		if errors.Is(err, syscall.EPIPE) {
			err = errBrowserGone
		}
		return err
	}
	return nil
}

// closeWriter closes the input of the browser, which ends it.
func (c *conn) closeWriter() { _ = c.out.Close() }

// close ends the reader, once the browser has ended: a process that outlives it may have its end of the pipe.
func (c *conn) close() {
	_ = c.in.Close() // nothing is asked any more
	c.done.Wait()
}
