package torture

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

// A touch counts from the timestamp that the kernel gives its file, whose clock advances only in ticks.
const kernelTick = 10 * time.Millisecond

// modelClients are clients that call the same few operations concurrently, and record the replies.
type modelClients struct {
	t     *testing.T
	r     *rig
	d     *daemon
	began time.Time

	mu      sync.Mutex
	history []porcupine.Operation
	ops     []statefs.ID // the operations that the clients use
	open    int          // calls whose answer was lost
	seen    int          // operations
}

// patient is how long a client waits for an effect, because another client may undo it before it is seen.
// Long calls make the search for an order slow.
const patient = 200 * time.Millisecond

// act lets clients make about that many calls in all, and returns their history.
func (c *modelClients) act(clients, operations, calls int) []porcupine.Operation {
	c.t.Helper()
	for range operations {
		c.submit(0, len(c.ops))
	}
	var all sync.WaitGroup
	for number := range clients {
		random := rand.New(rand.NewPCG(c.r.random.Uint64(), 17))
		all.Go(func() {
			for range calls / clients {
				if err := c.one(number, random); err != nil {
					c.t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	for i := range c.history { // calls without a reply may take effect until the end
		if c.history[i].Return == 0 {
			c.history[i].Return = c.now()
		}
	}
	return c.history
}

func (c *modelClients) now() int64 { return int64(time.Since(c.began)) }

// note records a call with its reply.
func (c *modelClients) note(number int, began int64, in call, out reply) {
	entry := porcupine.Operation{ClientId: number, Input: in, Call: began, Output: out, Return: c.now()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if out.lost {
		entry.Return = 0
		c.open++
	}
	c.history = append(c.history, entry)
}

// submit starts an operation that replaces another one.
func (c *modelClients) submit(number, place int) {
	began := c.now()
	op, err := c.d.Submit(c.t.Context(), "t", "sleep", nil)
	if err != nil {
		c.t.Errorf("submit: %v", err)
		return
	}
	c.note(number, began, call{id: op.ID, do: submit}, reply{state: op.State})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen++
	if place == len(c.ops) {
		c.ops = append(c.ops, op.ID)
	}
	c.ops[place] = op.ID
}

// one makes one random call for one operation.
func (c *modelClients) one(number int, random *rand.Rand) error {
	c.mu.Lock()
	place := random.IntN(len(c.ops))
	id := c.ops[place]
	c.mu.Unlock()
	ended := false
	var err error
	switch what := random.IntN(100); {
	case what < 22:
		ended, err = c.get(number, id)
	case what < 38:
		err = c.ls(number, id, []statefs.State{
			statefs.Queued, statefs.Running, statefs.Running, statefs.Paused,
			statefs.Paused,
		}[random.IntN(5)])
	case what < 72:
		ask, wait := []statefs.Action{statefs.Pause, statefs.Resume}[random.IntN(2)], time.Duration(random.IntN(2))*patient
		ended, err = c.request(number, id, ask, wait, random)
	case what < 84:
		err = c.touch(number, id, []statefs.Action{statefs.Pause, statefs.Resume}[random.IntN(2)])
	case what < 98:
		way := [][2]statefs.State{
			{statefs.Running, statefs.Paused},
			{statefs.Paused, statefs.Running},
			{statefs.Queued, statefs.Paused},
		}[random.IntN(5)/2]
		err = c.mv(number, id, way[0], way[1])
	case what < 99:
		_, err = c.request(number, id, statefs.Cancel, time.Duration(random.IntN(2))*patience, random)
	default:
		err = c.touch(number, id, statefs.Cancel)
	}
	if ended && random.IntN(3) == 0 { // the other clients may still use it
		c.mu.Lock()
		known := c.ops[place] != id
		c.mu.Unlock()
		if !known {
			c.submit(number, place)
		}
	}
	return err
}

func (c *modelClients) get(number int, id statefs.ID) (ended bool, err error) {
	began := c.now()
	op, err := c.d.Operation(c.t.Context(), id)
	if err != nil {
		return false, err
	}
	c.note(number, began, call{id: id, do: get}, reply{state: op.State})
	return op.State.Terminal(), nil
}

// ls checks a single name: a listing of a folder in which names change may show a marker twice, or not at
// all.
func (c *modelClients) ls(number int, id statefs.ID, state statefs.State) error {
	began := c.now()
	_, err := os.Lstat(c.marker(id, state))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	c.note(number, began, call{id: id, do: marker, state: state}, reply{yes: err == nil})
	return nil
}

func (c *modelClients) marker(id statefs.ID, state statefs.State) string {
	return filepath.Join(c.r.dir, "jobs", statefs.MarkerName(id, state))
}

func (c *modelClients) mv(number int, id statefs.ID, from, to statefs.State) error {
	began := c.now()
	err := os.Rename(c.marker(id, from), c.marker(id, to))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	c.note(number, began, call{id: id, do: move, from: from, state: to}, reply{yes: err == nil})
	return nil
}

func (c *modelClients) touch(number int, id statefs.ID, ask statefs.Action) error {
	began := c.now() - int64(kernelTick)
	if err := c.r.touch(id, ask); err != nil {
		return err
	}
	c.note(number, began, call{id: id, do: touch, action: ask}, reply{})
	return nil
}

// request makes a request over HTTP; unless random is nil, some clients disconnect before they read the
// answer.
func (c *modelClients) request(number int, id statefs.ID, ask statefs.Action, wait time.Duration,
	random *rand.Rand,
) (ended bool, err error) {
	ctx, in := c.t.Context(), call{id: id, do: request, action: ask}
	if random != nil && random.IntN(100) == 0 {
		hasty, cancel := context.WithTimeout(ctx, time.Duration(random.IntN(3000))*time.Microsecond)
		defer cancel()
		ctx = hasty
	}
	began := c.now()
	answer, err := c.d.Request(ctx, id, ask, wait)
	refused, answered := errors.AsType[*client.Error](err)
	switch {
	case answered && refused.Status == http.StatusNotFound:
		c.note(number, began, in, reply{absent: true})
		return true, nil
	case answered || err != nil && ctx.Err() == nil:
		return false, err
	case err != nil:
		c.note(number, began, in, reply{lost: true})
		return false, nil
	}
	took := answer.TookEffect != nil && *answer.TookEffect
	if took && ((ask == statefs.Pause) != (answer.State == statefs.Paused) ||
		ask.Cancels() != (answer.State == statefs.Cancelled)) {
		return false, fmt.Errorf("%s of %s took effect, and it is %s", ask, id, answer.State)
	}
	c.note(number, began, in, reply{yes: true})
	switch {
	case answer.State == "":
	case answer.State.Terminal(): // a terminal state is final
		c.note(number, c.now(), call{id: id, do: get}, reply{state: answer.State})
	default: // the state was observed at some moment of the call
		c.note(number, began, call{id: id, do: marker, state: answer.State}, reply{yes: true})
	}
	return answer.State.Terminal(), nil
}
