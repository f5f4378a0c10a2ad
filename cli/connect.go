package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

// defaultServer is asked when nothing names a daemon and the default storage has none.
const defaultServer = "http://127.0.0.1:8484"

// connect finds the daemon: the one that --server or JOBDIR_SERVER names, else the one that holds the storage directory,
// else, when nobody named a storage, one at the default address. The error is unreachable when there is none.
func (a *app) connect(ctx context.Context, conf *loaded) (*client.Client, error) {
	if address := a.serverAddress(); address != "" {
		token, err := clientToken(conf)
		if err != nil {
			return nil, err
		}
		c, err := a.dial(address, client.WithToken(token))
		if err != nil {
			return nil, usagef("server %w", err)
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
	if !conf.explicit("storage") {
		// No token is shown here: anybody may listen at that address.
		if c, err := a.dial(defaultServer); err == nil {
			_, err := c.Health(ctx)
			refused, ok := errors.AsType[*client.Error](err)
			if err == nil || ok && refused.Status == http.StatusUnauthorized {
				a.streams.say("using the daemon at %s: none has the storage %s (name one with --server or --storage)", defaultServer, conf.Storage)
				return c, nil
			}
		}
	}
	return nil, &client.UnreachableError{
		Address: conf.Storage,
		Err:     errors.New("start one with 'jobdir serve', or name one with --storage or --server"),
	}
}

// dial makes a client that says when it waits for a daemon which is restarted.
func (a *app) dial(address string, options ...client.Option) (*client.Client, error) {
	lost := func(err error) {
		a.streams.say("the daemon is away (%v); trying again for %s", err, client.DefaultPatience)
	}
	back := func() { a.streams.say("the daemon is back") }
	return client.New(address, append(options, client.WithNotice(lost, back))...)
}

func (a *app) serverAddress() string {
	if a.server != "" {
		return a.server
	}
	address, _ := lookupEnv("JOBDIR_SERVER")
	return address
}

// tree opens the storage directory for a command that can do without a daemon. It makes nothing.
func (a *app) tree(conf *loaded) (*statefs.Tree, error) {
	info, err := os.Stat(filepath.Join(conf.Storage, "jobs"))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, notFoundf("there is no storage directory at %s, and no daemon answers: name one with --storage or --server", conf.Storage)
	}
	if err != nil {
		return nil, fmt.Errorf("open storage: %w", err)
	}
	return statefs.Open(conf.Storage, statefs.Options{Durability: conf.Durability})
}

// reach calls with for a daemon or, when none answers and none was named, without for the storage directory.
func (a *app) reach(ctx context.Context, conf *loaded, with func(*client.Client) error, without func(*statefs.Tree) error) error {
	c, err := a.connect(ctx, conf)
	if err == nil {
		defer c.Close()
		return with(c)
	}
	if !client.Unreachable(err) || a.serverAddress() != "" {
		return err
	}
	tree, err := a.tree(conf)
	if err != nil {
		return err
	}
	defer tree.Close()
	return without(tree)
}
