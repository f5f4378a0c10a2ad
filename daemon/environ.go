package daemon

import (
	"fmt"
	"strings"

	"github.com/jobdir/jobdir/catalog"
)

// ownPrefix begins the names of the daemon's own settings; some of them are secrets, so none is handed on.
const ownPrefix = "JOBDIR_"

// environment returns what a command of the run gets: the daemon's environment as it is now, that of the lane, the job's env, and the names that
// tell it where it is. A later entry of a name replaces an earlier one.
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
	return lastOfEach(append(env, extra...))
}

// marks are the entries by which every descendant of the run's commands is known. Those of another run of the same operation are not
// its own: ending what is left of the one must not end the other.
func (r *run) marks() []string {
	return []string{"JOBDIR_ID=" + r.id.String(), fmt.Sprintf("JOBDIR_RUN=%d", r.number), r.owner.Mark()}
}

// lastOfEach drops the entries that a later one of the same name replaces.
func lastOfEach(env []string) []string {
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
