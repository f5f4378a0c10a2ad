package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/client"
)

// Connect finds the daemon that --server or JOBDIR_SERVER names, or else the daemon that holds the storage
// directory. It never uses the daemon of another storage unless that is named. The error is unreachable if
// there is none.
func (t *Target) Connect(ctx context.Context) (*client.Client, error) {
	if address := t.address(); address != "" {
		token, err := t.Config.ClientToken()
		if err != nil {
			return nil, err
		}
		c, err := t.dial(address, client.WithToken(token))
		if err != nil {
			return nil, exit.Usagef("server %w", err)
		}
		return c, nil
	}
	c, err := t.dial("unix:" + filepath.Join(t.Config.Storage, "jobdir.sock"))
	if err != nil {
		return nil, err
	}
	_, err = c.Health(ctx)
	if !client.Unreachable(err) {
		return c, nil
	}
	hint := "start one with 'jobdir serve', or name one with --storage or --server"
	if !t.Config.Explicit("storage") {
		other, storage := t.otherDaemon(ctx)
		switch {
		case other == nil:
		case sameFolder(storage, t.Config.Storage):
			return other, nil
		default:
			other.Close()
			hint = fmt.Sprintf("the one at %s has %s: name it with --server %s, or start another with 'jobdir serve'",
				other.Address(), cmp.Or(storage, "another storage"), other.Address())
		}
	}
	return nil, &client.UnreachableError{Address: t.Config.Storage, Err: errors.New(hint)}
}

// otherDaemon checks whether a daemon answers at the default address, and returns it with its storage, or
// nil. The daemon's socket may be out of reach for this user or on this file system. The request carries no
// token, because any program may listen at that address.
func (t *Target) otherDaemon(ctx context.Context) (daemon *client.Client, storage string) {
	i := slices.IndexFunc(t.Config.Listen, func(address string) bool {
		return !strings.HasPrefix(address, config.UnixPrefix) &&
			config.Loopback(address)
	})
	if i < 0 {
		return nil, ""
	}
	c, err := t.dial("http://" + t.Config.Listen[i])
	if err != nil {
		return nil, ""
	}
	health, err := c.Health(ctx)
	if err == nil {
		return c, health.Storage
	}
	refused, ok := errors.AsType[*client.Error](err)
	if ok && refused.Status == http.StatusUnauthorized {
		return c, ""
	}
	c.Close()
	return nil, ""
}

// sameFolder reports whether two paths lead to the same folder.
func sameFolder(one, other string) bool {
	first, err := os.Stat(one)
	if err != nil {
		return false
	}
	second, err := os.Stat(other)
	return err == nil && os.SameFile(first, second)
}

// dial makes a client that prints a notice while it waits for a daemon that restarts.
func (t *Target) dial(address string, options ...client.Option) (*client.Client, error) {
	lost := func(error) { // the cause is obvious: the daemon restarted or the network failed
		t.Notice("the daemon is away; trying again for %s", client.DefaultReconnectTimeout)
	}
	back := func() { t.Notice("the daemon is back") }
	return client.New(address, append(options, client.WithReconnectNotice(lost, back))...)
}

func (t *Target) address() string { return cmp.Or(t.Server, os.Getenv("JOBDIR_SERVER")) }
