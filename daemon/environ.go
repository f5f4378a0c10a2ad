package daemon

import (
	"fmt"
	"strings"

	"github.com/jobdir/jobdir/catalog"
)

// ownPrefix is the prefix of the daemon's own settings. Some of them are secrets, so commands
// inherit none of them.
const ownPrefix = "JOBDIR_"

// environment returns the environment of a command of the run. Its sources, in order: the daemon's
// current environment, the lane, the job's env, the parameters, and the JOBDIR_ variables that
// describe the run. A later entry of a name replaces an earlier one.
func (r *run) environment(values catalog.Values, extra ...string) []string {
	var env []string
	for _, entry := range r.environ() {
		if !strings.HasPrefix(entry, ownPrefix) {
			env = append(env, entry)
		}
	}
	env = append(env, "PYTHONUNBUFFERED=1")
	env = append(env, r.laneEnv...)
	env = append(env, r.def.Environ(values)...)
	env = append(env, r.params.Environ()...)
	env = append(env, r.marks()...)
	env = append(env,
		"JOBDIR_STORAGE="+r.owner.Dir(),
		"JOBDIR_PROGRESS="+r.scratch.path("progress"),
		"JOBDIR_ARTIFACTS="+r.owner.ArtifactsPath(r.id),
		"JOBDIR_PARAMS="+r.scratch.path("params.json"),
	)
	if r.step.def != nil {
		env = append(env, "JOBDIR_STEP="+r.step.name())
	}
	return lastOfEachName(append(env, extra...))
}

// marks returns the variables that identify every descendant of the run's commands. They contain
// the run number, so that ending the leftover processes of one run does not end those of another
// run of the same operation.
func (r *run) marks() []string {
	return []string{"JOBDIR_ID=" + r.id.String(), fmt.Sprintf("JOBDIR_RUN=%d", r.number), r.owner.Mark()}
}

// lastOfEachName drops the entries that a later entry of the same name replaces.
func lastOfEachName(env []string) []string {
	last := make(map[string]int, len(env))
	for i, entry := range env {
		name, _, _ := strings.Cut(entry, "=")
		last[name] = i
	}
	out := env[:0:0]
	for i, entry := range env {
		name, _, _ := strings.Cut(entry, "=")
		if last[name] == i {
			out = append(out, entry)
		}
	}
	return out
}
