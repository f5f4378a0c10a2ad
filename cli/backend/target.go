package backend

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

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

// Target names a storage, and how to reach it.
type Target struct {
	Config *config.Loaded
	// Server is the address of a daemon, "" for the daemon that holds the storage.
	Server string
	// Catalog has the definitions and handlers of the program.
	Catalog catalog.Options
	// Notice tells a person what takes time.
	Notice func(format string, args ...any)
}

// Open returns the backend of a daemon, or of the storage directory if no daemon answers and none was named.
func (t *Target) Open(ctx context.Context) (*Backend, error) {
	c, err := t.Connect(ctx)
	if err == nil {
		return Remote(c), nil
	}
	if !client.Unreachable(err) || t.address() != "" {
		return nil, err
	}
	tree, err := t.tree(err)
	if err != nil {
		return nil, err
	}
	d := &directory{tree: tree, catalog: t.Catalog, conf: t.Config}
	return &Backend{
		Operations: d, Logs: d, Requests: d, Lanes: lanes{d}, Storage: d,
		Away: tree.Dir(), Close: func() { _ = tree.Close() },
	}, nil
}

// tree opens the storage directory for a command that works without a daemon; away is the reason why there is
// no daemon. It creates nothing.
func (t *Target) tree(away error) (*statefs.Tree, error) {
	info, err := os.Stat(filepath.Join(t.Config.Storage, "jobs"))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, exit.NotFoundf("there is no storage directory at %s, and %w", t.Config.Storage, away)
	}
	if err != nil {
		return nil, fmt.Errorf("open storage: %w", err)
	}
	return t.openTree(statefs.CommitOptions{})
}

func (t *Target) openTree(commit statefs.CommitOptions) (*statefs.Tree, error) {
	return statefs.Open(t.Config.Storage, statefs.Options{Durability: t.Config.Durability, Commit: commit})
}

// Directory opens the storage directory for a command that never asks a daemon. The caller closes it.
func (t *Target) Directory(command string) (*statefs.Tree, error) {
	return t.tree(errors.New(command + " works on it"))
}

// RepairJournal takes the lock of the storage and repairs its journal. It returns nil if that is not damaged.
func (t *Target) RepairJournal() (did *statefs.JournalRepair, err error) {
	checked, err := t.Directory("journal repair")
	if err != nil {
		return nil, err
	}
	if err := checked.Close(); err != nil {
		return nil, err
	}
	tree, err := t.openTree(statefs.CommitOptions{Repair: func(r statefs.JournalRepair) { did = &r }})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tree.Close()) }()
	owner, err := statefs.Own(tree)
	if err != nil {
		return nil, err
	}
	return did, owner.Release()
}

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

// RemoveForeign removes the marker and the requests of a foreign operation from the directory, like rm(1), and returns
// the names of the files.
func (t *Target) RemoveForeign(id statefs.ID) ([]string, error) {
	tree, err := t.Directory("sweep --force")
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	return tree.RemoveForeign(id)
}
