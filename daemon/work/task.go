package work

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/steps"
)

// LogWatch sends on a channel whenever a file is written. The daemon uses a watch.Files.
type LogWatch interface {
	Subscribe(path string, wake chan<- struct{}) (cancel func(), err error)
}

// wholeRun is the number of the command of a whole run among the commands of the run; the numbers
// of items begin with 1.
const wholeRun = 0

// Host is what all runs of a daemon have in common.
type Host struct {
	Owner  *statefs.Owner
	Logger *slog.Logger
	Files  LogWatch
	// Starter starts commands. Keepers may hold those of an earlier daemon; nil if there are none.
	Starter keeper.Starter
	Keepers *keeper.Pool
	// Environ returns the environment that commands inherit.
	Environ func() []string
	// Grace and StallAfter are for jobs that do not set their own.
	Grace, StallAfter time.Duration
	// StraysEndedAt is when recovery ended the commands without a living keeper; zero if there were
	// none. An exit by a signal after that time is not a result of the command itself.
	StraysEndedAt time.Time
}

// task is what a run is to do, and where its files are. It does not change.
type task struct {
	host   *Host
	id     statefs.ID
	number int
	def    *catalog.Definition
	params catalog.Params
	step   step
	// optional is set for an optional step, which has its own log and item file.
	optional bool
	laneEnv  []string
	// adopted is set if an earlier daemon started this run; elapsed is how long it had worked before.
	adopted bool
	elapsed time.Duration
	scratch scratch
	// redoFrom is the first run whose failed items count as done.
	redoFrom int
	// retryOf is the operation that this one repeats; with failedOnly it repeats only the items
	// that failed there.
	retryOf    *statefs.ID
	failedOnly bool
}

// makeFolders makes the folders that commands of the run use.
func (t *task) makeFolders(rec *statefs.Record) error {
	params, err := rec.EffectiveParams()
	if err != nil {
		return err
	}
	if t.scratch, err = newScratch(t.LogPath(), params, t.adopted); err != nil {
		return err
	}
	err = files.MakeFolder(t.host.Owner.ArtifactsPath(t.id))
	if err == nil || t.adopted && files.DiskFull(err) {
		return nil // work that has begun can be controlled without it when the disk is full
	}
	return fmt.Errorf("make the folder of artifacts: %w", err)
}

// Def returns the definition of the work: that of the job, or that of its step.
func (t *task) Def() *catalog.Definition { return t.def }

// Number returns the number of the run.
func (t *task) Number() int { return t.number }

// Step returns the step that the run executes, nil for a job without steps.
func (t *task) Step() *catalog.Step { return t.step.def }

// StepName returns the name of that step, "" for none.
func (t *task) StepName() string { return t.step.name() }

// isHandler reports whether the work is Go code and not commands.
func (t *task) isHandler() bool { return t.def.Work() == catalog.WorkHandler }

// Grace is the time between SIGTERM and SIGKILL for the commands of the run.
func (t *task) grace() time.Duration {
	if t.def.Grace > 0 {
		return t.def.Grace
	}
	return t.host.Grace
}

// StallAfter is how long the work may give no sign of life before it has stalled; 0 means forever.
func (t *task) StallAfter() time.Duration {
	if t.def.StallAfter != 0 {
		return max(t.def.StallAfter, 0) // negative: the job has none
	}
	return t.host.StallAfter
}

// LogPath is the file to which the work writes.
func (t *task) LogPath() string { return logPath(t.host.Owner, t.id, t.optionalStepName()) }

func logPath(owner *statefs.Owner, id statefs.ID, optionalStep string) string {
	if optionalStep != "" {
		return owner.StepLogPath(id, optionalStep)
	}
	return owner.LogPath(id)
}

// readLog opens the file to which the work writes, for reading.
func (t *task) readLog() (*os.File, error) {
	if t.optional {
		return t.host.Owner.OpenStepLog(t.id, steps.Find(t.step.list, t.step.name()))
	}
	return files.OpenRegular(t.LogPath()) // by its path, as it is opened for writing
}

// optionalStepName is the name of the optional step that the run executes, "" for any other run.
func (t *task) optionalStepName() string {
	if t.optional {
		return t.step.name()
	}
	return ""
}

// exitNameOf is the name of the exit report of a command; side is its optional step, "" for none.
func exitNameOf(id statefs.ID, side string, item int) string {
	if item == wholeRun {
		return statefs.ExitName(id, side)
	}
	return statefs.ItemExitName(id, side, item)
}

func (t *task) values(item string) catalog.Values {
	return catalog.Values{Params: t.params, ID: t.id.String(), Item: item, Steps: t.step.list}
}

// command returns a command of the job for the keeper. It contains a whole environment, so callers
// do not keep it after the start.
func (t *task) command(item int, name string, output *os.File, timeout time.Duration, values catalog.Values,
	extra ...string,
) *keeper.Command {
	return &keeper.Command{
		Args: t.def.Command(values), Dir: t.def.Folder(values), Env: t.environment(values, extra...),
		Output: output, Grace: t.grace(), Mark: t.marks(), ScanOnExit: item == wholeRun, Timeout: timeout,
		Key:    keeper.Key{Operation: t.id.String(), Run: t.number, Item: item},
		Report: exitNameOf(t.id, t.optionalStepName(), item), Label: name,
	}
}

// earlierProgress returns the last progress that an earlier daemon noted for the current run; its
// time is zero if none is known.
func (t *task) earlierProgress(rec *statefs.Record) statefs.Progress {
	p, err := t.host.Owner.ReadProgress(rec.ID)
	if err != nil && rec.Progress != nil {
		p = *rec.Progress
	}
	for _, row := range rec.Transitions {
		if row.Cause == statefs.CauseStart && p.At.Before(row.At) {
			return statefs.Progress{} // the progress is of an earlier run
		}
	}
	return t.step.ofStep(p)
}

// step is the step that a run executes; its zero value is a run of a job without steps.
type step struct {
	def *catalog.Step
	// list holds the steps of the operation when the run began: the run may refer to them.
	list []steps.Step
	// finished of all required steps were done at that time; phase is the milestone that was reached.
	finished, all int64
	phase         string
	// from is where the output of the run begins in the log.
	from int64
}

func newStep(job *catalog.Definition, list []steps.Step, at *steps.Step, name string) (step, error) {
	s := step{def: job.Step(name), list: steps.Clone(list), phase: job.Phase(list)}
	if s.def == nil || at == nil {
		return s, fmt.Errorf("job %s has no step %q", job.Address(), name)
	}
	finished, all := steps.Progress(list)
	s.finished, s.all, s.from = int64(finished), int64(all), at.LogFrom
	return s, nil
}

func (s *step) name() string {
	if s.def == nil {
		return ""
	}
	return s.def.Name
}

// ofOperation converts the progress of a step to that of its operation.
func (s *step) ofOperation(p statefs.Progress) statefs.Progress {
	if s.def == nil {
		return p
	}
	return statefs.Progress{
		Done: s.finished, Total: &s.all, Phase: s.phase, At: p.At,
		Step: &statefs.StepProgress{Name: s.def.Name, Done: p.Done, Total: p.Total, Phase: p.Phase},
	}
}

// ofStep converts the progress of an operation to that of its step.
func (s *step) ofStep(p statefs.Progress) statefs.Progress {
	if s.def == nil {
		return p
	}
	if p.Step == nil || p.Step.Name != s.def.Name {
		return statefs.Progress{}
	}
	return statefs.Progress{Done: p.Step.Done, Total: p.Step.Total, Phase: p.Step.Phase, At: p.At}
}

// missingOutput returns an error if the report of a step that succeeded lacks a declared output, or
// if an output is too large for the record.
func (s *step) missingOutput(r *Report) error {
	if s.def == nil {
		return nil
	}
	for _, name := range s.def.Outputs {
		value, ok := r.Member(name)
		switch {
		case !ok:
			return &Error{OutputMissing, fmt.Errorf("its result has no %q, which the job names as an output", name)}
		case len(value) > param.MaxString:
			return &Error{
				OutputTooLarge,
				fmt.Errorf("its output %q has %d bytes; at most %d are kept: write it to a file in JOBDIR_ARTIFACTS and give its name", name, len(value), param.MaxString),
			}
		}
	}
	return nil
}

// The error codes of a step that leaves no output, or an output that does not fit into the record.
// A retry would not change that.
const (
	OutputMissing  = "output_missing"
	OutputTooLarge = "output_too_large"
)

// remainingTimeout returns what is left of the job's timeout when this daemon begins with the run.
func (t *task) remainingTimeout() time.Duration {
	if t.def.Timeout <= 0 {
		return 0
	}
	return max(t.def.Timeout-t.elapsed, 1)
}

func (t *task) timeoutError() error {
	return &Error{Code: "timeout", Err: fmt.Errorf("it took longer than the timeout of %s", t.def.Timeout)}
}

// ownPrefix is the prefix of the daemon's own settings. Some of them are secrets, so commands
// inherit none of them.
const ownPrefix = "JOBDIR_"

// environment returns the environment of a command of the run. Its sources, in order: the daemon's
// current environment, the lane, the job's env, the parameters, and the JOBDIR_ variables that
// describe the run. A later entry of a name replaces an earlier one.
func (t *task) environment(values catalog.Values, extra ...string) []string {
	own := func(entry string) bool { return strings.HasPrefix(entry, ownPrefix) }
	env := append(slices.DeleteFunc(slices.Clone(t.host.Environ()), own), "PYTHONUNBUFFERED=1")
	env = append(env, t.laneEnv...)
	env = append(env, t.def.Environ(values)...)
	env = append(env, t.params.Environ()...)
	env = append(env, t.marks()...)
	env = append(env,
		"JOBDIR_STORAGE="+t.host.Owner.Dir(),
		"JOBDIR_PROGRESS="+t.scratch.path(scratchProgress),
		"JOBDIR_ARTIFACTS="+t.host.Owner.ArtifactsPath(t.id),
		"JOBDIR_PARAMS="+t.scratch.path(scratchParams),
	)
	if t.step.def != nil {
		env = append(env, "JOBDIR_STEP="+t.step.name())
	}
	return lastOfEachName(append(env, extra...))
}

// marks returns the variables that identify every descendant of the run's commands. They contain
// the run number, so that ending the leftover processes of one run does not end those of another
// run of the same operation.
func (t *task) marks() []string {
	return []string{"JOBDIR_ID=" + t.id.String(), fmt.Sprintf("JOBDIR_RUN=%d", t.number), t.host.Owner.Mark()}
}

// lastOfEachName drops the entries that a later entry of the same name replaces.
func lastOfEachName(env []string) []string {
	seen := make(map[string]bool, len(env))
	out := make([]string, 0, len(env))
	for _, entry := range slices.Backward(env) {
		if name, _, _ := strings.Cut(entry, "="); !seen[name] {
			seen[name] = true
			out = append(out, entry)
		}
	}
	slices.Reverse(out)
	return out
}
