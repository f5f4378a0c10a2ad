package torture

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/cli"
	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

// recorderEnv is the address of the server that records when the work of a handler starts.
const recorderEnv = "JOBDIR_TORTURE_RECORDER"

// sweepEnv is the time between two sweeps; the default is an hour.
const sweepEnv = "JOBDIR_TORTURE_SWEEP"

const handlerJobs = `
group: t
name: wait
unique: {on_hit: off}
handler: wait
---
group: t
name: count
unique: {on_hit: off}
handler: count
---
group: t
name: followed
handler: count
then: {job: t/count}
---
group: t
name: chain
unique: {on_hit: off}
steps:
  - {name: one, handler: step}
  - {name: two, needs: [one], handler: step}
  - {name: agree, needs: [two], approve: true}
  - {name: fails, needs: [agree], handler: step}
  - {name: last, needs: [fails], handler: step}
  - {name: aside, needs: [one], optional: true, handler: step}
  - {name: after, needs: [aside, last], optional: true, handler: step}
`

// handlerConfig configures a daemon whose work is Go code, so that hundreds of daemons can be started in a
// second.
func handlerConfig(dir string) cli.ServeConfig {
	recorder := os.Getenv(recorderEnv)
	begin := func(op *work.Op) error {
		if recorder == "" {
			return nil
		}
		answer, err := http.Get(recorder + "?" + url.Values{"id": {op.ID()}, "run": {strconv.Itoa(op.RunNumber())}, "step": {op.Step()}}.Encode()) //nolint:noctx // it is answered or the test is over
		if err != nil {
			return err
		}
		return answer.Body.Close()
	}
	method := statefs.CommitFiles // the checks of these scenarios do not read the journal yet
	if set := os.Getenv("JOBDIR_COMMIT"); set != "" {
		method = statefs.CommitMethod(set)
	}
	return cli.ServeConfig{
		Storage: dir, Listen: []string{"127.0.0.1:0"}, Upkeep: config.Upkeep{SweepInterval: time.Hour},
		Commit: statefs.CommitOptions{Method: method, SegmentSize: 128 << 10},
		// the test kills work more often than the default allows
		Work: config.Work{CrashLimit: catalog.CrashLimit{Burst: catalog.MaxCrashBurst, Within: 1}},
		Definitions: []catalog.Source{
			{Name: "torture.yaml", YAML: []byte(handlerJobs)},
			{Name: "deliver.yaml", YAML: []byte(deliverJobs(dir))},
		},
		Handlers: map[string]work.Handler{
			"wait": {Run: func(_ context.Context, op *work.Op) error {
				if err := begin(op); err != nil {
					return err
				}
				return op.Sleep(time.Hour)
			}},
			"step": {Run: func(_ context.Context, op *work.Op) error {
				if err := begin(op); err != nil {
					return err
				}
				if op.Step() == "fails" && recorder != "" {
					return work.NeedsPerson(errors.New("it fails"))
				}
				return nil
			}},
			"leave": {Run: func(_ context.Context, op *work.Op) error {
				err := begin(op)
				for _, name := range leftFiles() {
					err = errors.Join(err, leave(op, name))
				}
				return err
			}},
			"count": {Run: func(_ context.Context, op *work.Op) error {
				if err := begin(op); err != nil {
					return err
				}
				for i := 1; i <= 2; i++ {
					op.Item(i, 2, strconv.Itoa(i))
					op.OK()
				}
				return nil
			}},
		},
	}
}

// leave writes a file that contains its own name.
func leave(op *work.Op, name string) error {
	f, err := op.Artifact(name)
	if err != nil {
		return err
	}
	_, err = f.WriteString(name)
	return errors.Join(err, f.Close())
}

func init() { children["serve"] = childServes }

// childServes serves a storage until SIGTERM.
func childServes(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	config := handlerConfig(args[0])
	if every, err := time.ParseDuration(os.Getenv(sweepEnv)); err == nil {
		config.Upkeep.SweepInterval = every
	}
	config.Serving = func(s cli.Serving) { fmt.Fprintf(os.Stderr, "jobdir: serving %s, ready\n", s.Addresses[0]) }
	return cli.Serve(ctx, config)
}
