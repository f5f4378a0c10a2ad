package torture

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs"
)

// resultJobs have results that are needed after their end: a result, a next job, a wait, and results of
// items.
const resultJobs = `
group: t
name: counts
params: {n: {type: integer, required: true}}
run: [sh, -c, 'echo "{\"n\": $JOBDIR_PARAM_N}" >$JOBDIR_RESULT']
then: {job: t/follows, params: {n: "${result.n}"}}
---
group: t
name: follows
params: {n: {type: integer, required: true}}
run: ["true"]
---
group: t
name: asks
params: {n: {type: integer, required: true}}
retry: {max_attempts: 2}
run: [sh, -c, 'test $JOBDIR_RUN = 1 || exit 0; echo "{\"retry_after\": 0.01}" >$JOBDIR_RESULT; exit 4']
---
group: t
name: items
params: {n: {type: integer, required: true}}
items: {range: [1, 8]}
parallel: 2
run: [sh, -c, 'echo "{\"n\": ${item}}" >$JOBDIR_RESULT; echo ${item}']
`

// TestKillKeepsResults kills the daemon while commands end: their results and follow-ups are the same as
// without a kill.
func TestKillKeepsResults(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "storage"))
	must(t, os.WriteFile(filepath.Join(r.jobs, "jobs.yaml"), []byte(resultJobs), 0o600))
	const each = 12
	cycles := prooftest.Count(2, 4, 60)
	submitted := make(map[statefs.ID]string)
	for cycle := range cycles {
		d := r.start()
		var list []client.Submission
		for i := range each {
			for _, job := range []string{"counts", "asks", "items"} {
				list = append(list, client.Submission{Job: "t/" + job, Params: map[string]int{"n": cycle*each + i}})
			}
		}
		made, err := d.SubmitList(t.Context(), list)
		must(t, err)
		for i, m := range made {
			submitted[m.ID] = list[i].Job
		}
		r.pause(d, time.Second)
		d.kill()
	}
	d := r.start()
	tree, err := statefs.Open(r.dir, statefs.Options{})
	must(t, err)
	for id, job := range submitted {
		rec := ended(t, tree, id)
		if err := checkResult(t, tree, rec); err != nil {
			t.Errorf("%s: %v\nit is %s, run %d, %d attempts, error %+v, then %+v, footer %s", job, err, rec.Status, rec.Run,
				rec.Attempts, rec.Error, rec.Then, rec.Footer)
		}
	}
	must(t, tree.Close())
	d.stop(t)
	figures.add(t, "results that outlived the kills", len(submitted))
}

// ended returns the record of an operation once that has ended.
func ended(t *testing.T, tree *statefs.Tree, id statefs.ID) (rec *statefs.Record) {
	t.Helper()
	until(t, id.String()+" has ended", func() bool {
		var err error
		if rec, err = tree.ReadRecord(id); journaled() && errors.Is(err, fs.ErrNotExist) {
			return false
		}
		must(t, err)
		return rec.Status.Terminal()
	})
	return rec
}

// checkResult compares the result of an operation with the output of its commands.
func checkResult(t *testing.T, tree *statefs.Tree, rec *statefs.Record) error {
	t.Helper()
	if rec.Status != statefs.Completed || rec.Result != statefs.Success {
		return fmt.Errorf("the result is %q", rec.Result)
	}
	var params struct{ N int }
	must(t, json.Unmarshal(rec.Params, &params))
	var footer struct {
		N     *int
		Files []struct {
			Filename string
			N        int
		} `json:"processed_files"`
	}
	must(t, json.Unmarshal(rec.Footer, &footer))
	switch rec.Job {
	case "counts":
		if footer.N == nil || *footer.N != params.N || rec.Then == nil || rec.Then.Error != "" {
			return errors.New("it lacks its result or its follower")
		}
		var given struct{ N int }
		next := ended(t, tree, rec.Then.ID)
		must(t, json.Unmarshal(next.Params, &given))
		if next.Status != statefs.Completed || given.N != params.N {
			return fmt.Errorf("what follows is %s with %s", next.Status, next.Params)
		}
	case "asks":
		if rec.Run < 2 {
			return errors.New("it was not tried again")
		}
	case "items":
		if len(footer.Files) != 8 || rec.Processed != 8 {
			return fmt.Errorf("it has %d items", len(footer.Files))
		}
		for _, f := range footer.Files {
			if f.Filename != strconv.Itoa(f.N) {
				return fmt.Errorf("item %s lacks its result", f.Filename)
			}
		}
	}
	return nil
}
