package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// postgresQueue is River on a PostgreSQL with the settings that it has after its installation, which sync every commit.
type postgresQueue struct {
	server   *process
	pool     *pgxpool.Pool
	client   *river.Client[pgx.Tx]
	cooldown time.Duration
	followed chan struct{}
	unfollow func()
}

type noop struct {
	Number int64 `json:"number"`
}

func (noop) Kind() string { return "noop" }

type noopWorker struct{ river.WorkerDefaults[noop] }

func (*noopWorker) Work(context.Context, *river.Job[noop]) error { return nil }

func startRiver(cooldown time.Duration) func(context.Context, string) (system, error) {
	return func(ctx context.Context, dir string) (system, error) {
		p, err := startPostgres(ctx, dir)
		if err != nil {
			return nil, err
		}
		q := &postgresQueue{server: p, cooldown: cooldown}
		err = p.ready(ctx, func(ctx context.Context) (err error) {
			config, err := pgxpool.ParseConfig("host=" + dir + " user=bench dbname=postgres pool_max_conns=64")
			if err != nil {
				return err
			}
			if q.pool != nil {
				q.pool.Close()
			}
			if q.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
				return err
			}
			return q.pool.Ping(ctx)
		})
		if err != nil {
			return nil, err
		}
		migrator, err := rivermigrate.New(riverpgxv5.New(q.pool), nil)
		if err == nil {
			_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("make the tables of River: %w", err), q.stop())
		}
		return q, nil
	}
}

// startPostgres makes a database in dir and serves it on a socket there.
func startPostgres(ctx context.Context, dir string) (*process, error) {
	attributes := new(syscall.SysProcAttr)
	if os.Geteuid() == 0 {
		account, err := user.Lookup("postgres")
		if err != nil {
			return nil, fmt.Errorf("PostgreSQL does not run as root, and needs a user of its own: %w", err)
		}
		uid, err := strconv.ParseUint(account.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(account.Gid, 10, 32)
		if err := errors.Join(err, err2, os.Chown(dir, int(uid), int(gid))); err != nil {
			return nil, err
		}
		attributes.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	data := filepath.Join(dir, "data")
	initdb := exec.CommandContext(ctx, postgresProgram("initdb"), "-D", data, "-U", "bench", "--auth=trust",
		"--locale=C", "-E", "UTF8")
	initdb.SysProcAttr, initdb.Dir = attributes, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("make a database (make bench-peers installs PostgreSQL): %w\n%s", err, out)
	}
	cmd := exec.Command(postgresProgram("postgres"), "-D", data, "-k", dir, "-c", "listen_addresses=")
	copied := *attributes
	cmd.SysProcAttr, cmd.Dir = &copied, dir
	return start(cmd)
}

// postgresProgram finds a program of the newest PostgreSQL, which distributions keep out of the search path.
func postgresProgram(name string) string {
	found, _ := filepath.Glob(filepath.Join("/usr/lib/postgresql/*/bin", name)) // a pattern that is right
	return cmp.Or(slices.Max(append(found, "")), name)
}

func (q *postgresQueue) submit(ctx context.Context, number int64) error {
	_, err := q.client.Insert(ctx, noop{number}, nil)
	return err
}

func (q *postgresQueue) work(ctx context.Context, finished func(int64)) (err error) {
	registered := river.NewWorkers()
	river.AddWorker(registered, new(noopWorker))
	q.client, err = river.NewClient(riverpgxv5.New(q.pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}}, Workers: registered,
		FetchCooldown: q.cooldown, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return err
	}
	// An event says that the end is stored.
	ended,
		unfollow := q.client.SubscribeConfig(&river.SubscribeConfig{
		Kinds:    []river.EventKind{river.EventKindJobCompleted},
		ChanSize: 100_000,
	})
	q.unfollow, q.followed = unfollow, make(chan struct{})
	go func() {
		defer close(q.followed)
		for e := range ended {
			var args noop
			if err := json.Unmarshal(e.Job.EncodedArgs, &args); err != nil {
				fmt.Fprintln(os.Stderr, "peers: River:", err)
			}
			finished(args.Number)
		}
	}()
	return q.client.Start(ctx)
}

func (q *postgresQueue) settle(context.Context) error { return nil }

func (q *postgresQueue) stop() error {
	var err error
	if q.client != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		err = q.client.Stop(ctx)
		q.unfollow()
		<-q.followed
	}
	q.pool.Close()
	return errors.Join(err, q.server.stop())
}
