package torture

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/cli"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/internal/faultfs"
	"github.com/jobdir/jobdir/statefs"
)

// TestCutOffSubmitHasNoEnd starts a daemon on each disk state in which a crash left a record without a
// marker, during a submit by file, over HTTP and of a follow-up. No client knows these operations: they do not
// exist and have no end.
func TestCutOffSubmitHasNoEnd(t *testing.T) {
	t.Parallel()
	if err := faultfs.CanMount(); err != nil {
		t.Skip(err)
	}
	for name, script := range map[string]func(*play){
		"submit by file": func(s *play) { s.submitFile("count") },
		"follower":       func(s *play) { s.end(s.submit("followed")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, all := performBy(t, statefs.CommitFiles, script) // the journal has the record first
			crashes, _ := crashesOf(disk, all)
			states := 0
			for _, crash := range crashes {
				top, err := os.MkdirTemp(fastDir(), "jobdir-cutoff") //nolint:usetesting // dozens of them: each goes at once
				must(t, err)
				must(t, crash.image.Materialise(top))
				if dir := filepath.Join(top, "storage"); len(leftWithoutMarker(t, dir)) > 0 {
					states++
					if err := noCancelledEnd(dir, leftWithoutMarker(t, dir)); err != nil {
						t.Errorf("%s: %v\n%s", crash.image.Model, err, journalUpTo(disk, crash.at))
					}
				}
				must(t, os.RemoveAll(top))
			}
			if states == 0 {
				t.Error("no crash leaves a record without a marker: the test shows nothing")
			}
		})
	}
}

// submitFile submits a job by a file in new/ and waits for the answer.
func (s *play) submitFile(job string) {
	s.t.Helper()
	written := filepath.Join(s.p.dir, "tmp", "submission")
	must(s.t, os.WriteFile(written, []byte(`{"job":"t/`+job+`"}`), 0o600))
	must(s.t, os.Rename(written, filepath.Join(s.p.dir, "new", "one.json")))
	until(s.t, "the submission is answered", func() bool {
		_, err := os.Lstat(filepath.Join(s.p.dir, "new", "one.accepted"))
		return err == nil
	})
}

// leftWithoutMarker returns the live operations that have a record and no marker.
func leftWithoutMarker(t *testing.T, dir string) (ids []statefs.ID) {
	t.Helper()
	records, err := filepath.Glob(filepath.Join(dir, "operations", "*", "*.json"))
	must(t, err)
	for _, file := range records {
		data, err := os.ReadFile(file)
		must(t, err)
		id, err := statefs.ParseID(strings.TrimSuffix(filepath.Base(file), ".json"))
		must(t, err)
		markers, err := filepath.Glob(filepath.Join(dir, "jobs", id.String()+".*"))
		must(t, err)
		if len(markers) == 0 && strings.Contains(string(data), `"status":"queued"`) {
			ids = append(ids, id)
		}
	}
	return ids
}

// noCancelledEnd starts a daemon and returns an error if it publishes any end other than that of completed
// work, or knows one of the given operations.
func noCancelledEnd(dir string, unknown []statefs.ID) (err error) {
	config := handlerConfig(dir)
	serving := make(chan cli.Serving, 1)
	config.Serving = func(s cli.Serving) { serving <- s }
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- cli.Serve(ctx, config) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	var s cli.Serving
	select {
	case s = <-serving:
	case err := <-ended:
		ended <- nil
		return fmt.Errorf("the daemon does not start: %w", err)
	case <-time.After(patience):
		return errors.New("the daemon does not serve")
	}
	c, err := client.New(s.Addresses[0], client.WithReconnectTimeout(0))
	if err != nil {
		return err
	}
	defer c.Close()
	for _, id := range unknown {
		_, err := c.Operation(ctx, id)
		if refused, ok := errors.AsType[*client.Error](err); !ok || refused.Status != http.StatusNotFound {
			return fmt.Errorf("%s exists, or the answer is another one than 404: %w", id, err)
		}
	}
	var ends []client.End
	if err := eventually(func() (err error) { ends, _, err = c.Finished(ctx, 0, 0); return err }); err != nil {
		return err
	}
	for _, end := range ends {
		if end.State != statefs.Completed {
			return fmt.Errorf("the end of %s is published: %s", end.ID, end.State)
		}
	}
	return nil
}
