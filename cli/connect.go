package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

// connect finds the daemon that --server or JOBDIR_SERVER names, or else the daemon that holds the storage
// directory. It never uses the daemon of another storage unless that is named. The error is unreachable if
// there is none.
func (a *app) connect(ctx context.Context, conf *config.Loaded) (*client.Client, error) {
	if address := a.serverAddress(); address != "" {
		token, err := conf.ClientToken()
		if err != nil {
			return nil, err
		}
		c, err := a.dial(address, client.WithToken(token))
		if err != nil {
			return nil, exit.Usagef("server %w", err)
		}
		return c, nil
	}
	c, err := a.dial("unix:" + filepath.Join(conf.Storage, "jobdir.sock"))
	if err != nil {
		return nil, err
	}
	_, err = c.Health(ctx)
	if !client.Unreachable(err) {
		return c, nil
	}
	hint := "start one with 'jobdir serve', or name one with --storage or --server"
	if !conf.Explicit("storage") {
		other, storage := a.otherDaemon(ctx, conf)
		switch {
		case other == nil:
		case sameFolder(storage, conf.Storage):
			return other, nil
		default:
			other.Close()
			hint = fmt.Sprintf("the one at %s has %s: name it with --server %s, or start another with 'jobdir serve'",
				other.Address(), cmp.Or(storage, "another storage"), other.Address())
		}
	}
	return nil, &client.UnreachableError{Address: conf.Storage, Err: errors.New(hint)}
}

// otherDaemon checks whether a daemon answers at the default address, and returns it with its storage, or
// nil. The daemon's socket may be out of reach for this user or on this file system. The request carries no
// token, because any program may listen at that address.
func (a *app) otherDaemon(ctx context.Context, conf *config.Loaded) (daemon *client.Client, storage string) {
	i := slices.IndexFunc(conf.Listen, func(address string) bool {
		return !strings.HasPrefix(address, config.UnixPrefix) &&
			config.Loopback(address)
	})
	if i < 0 {
		return nil, ""
	}
	c, err := a.dial("http://" + conf.Listen[i])
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
func (a *app) dial(address string, options ...client.Option) (*client.Client, error) {
	lost := func(error) { // the cause is obvious: the daemon restarted or the network failed
		a.streams.Notice("the daemon is away; trying again for %s", client.DefaultReconnectTimeout)
	}
	back := func() { a.streams.Notice("the daemon is back") }
	return client.New(address, append(options, client.WithReconnectNotice(lost, back))...)
}

func (a *app) serverAddress() string {
	if a.server != "" {
		return a.server
	}
	address, _ := os.LookupEnv("JOBDIR_SERVER")
	return address
}

// tree opens the storage directory for a command that works without a daemon; away is the reason why there is
// no daemon. It creates nothing.
func (a *app) tree(conf *config.Loaded, away error) (*statefs.Tree, error) {
	info, err := os.Stat(filepath.Join(conf.Storage, "jobs"))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, exit.NotFoundf("there is no storage directory at %s, and %w", conf.Storage, away)
	}
	if err != nil {
		return nil, fmt.Errorf("open storage: %w", err)
	}
	return statefs.Open(conf.Storage, statefs.Options{Durability: conf.Durability})
}

// reach calls with for a daemon. If none answers and none was named, it calls without for the storage
// directory.
func (a *app) reach(ctx context.Context, conf *config.Loaded, with func(*client.Client) error,
	without func(*statefs.Tree) error,
) error {
	c, err := a.connect(ctx, conf)
	if err == nil {
		defer c.Close()
		return with(c)
	}
	if !client.Unreachable(err) || a.serverAddress() != "" {
		return err
	}
	tree, err := a.tree(conf, err)
	if err != nil {
		return err
	}
	defer tree.Close()
	return without(tree)
}
