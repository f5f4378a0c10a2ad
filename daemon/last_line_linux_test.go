package daemon

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs"
)

const lastLineJobs = `
group: test
name: words_timeout
timeout: 300ms
run: [sh, -c, "echo begins; exec sleep 1000"]
---
group: test
name: words_stalled
stall_after: 300ms
on_stall: retry
run: [sh, -c, "echo begins; exec sleep 1000"]
---
group: test
name: words_deadline
deadline: 400ms
run: [sh, -c, "echo begins; exec sleep 1000"]
---
group: test
name: words_died
restart: fail
params: {script: {type: string, required: true}}
run: [sh, -c, "${params.script}"]
---
group: test
name: words_step
restart: fail
params: {script: {type: string, required: true}}
steps:
  - {name: first, run: [sh, -c, "echo first"]}
  - {name: second, needs: [first], run: [sh, -c, "${params.script}"]}
`

// The error of a command that the daemon ended has the last line of the command.
func TestErrorOfAnEndedCommandHasItsLastLine(t *testing.T) {
	t.Parallel()
	b := setup(t, lastLineJobs, nil)
	for job, want := range map[string]string{
		"words_timeout":  "timeout: it took longer than the timeout of 300ms: begins",
		"words_stalled":  "stalled: no output and no progress for 300ms: begins",
		"words_deadline": "deadline_exceeded: it has not ended within its deadline of 400ms: begins",
	} {
		t.Run(job, func(t *testing.T) {
			t.Parallel()
			for tries := 1; ; tries++ { // on a busy machine a command may end before it has written anything
				rec := b.awaitEnd(b.submit(job, `{}`))
				got := rec.Error.Code + ": " + rec.Error.Message
				if got == want {
					return
				}
				if got+": begins" != want || tries == 30 {
					t.Fatalf("error %q, want %q", got, want)
				}
			}
		})
	}
}

const diesBegins = "echo begins; exec sleep 1000"

// The error of a command whose daemon or keeper has died, or that a stop of the daemon cut off, has
// the last line of the command.
func TestErrorOfInterruptedWorkHasItsLastLine(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		interrupt  func(k *keptItems, begun func())
		code, want string
	}{
		"the keeper dies": {func(k *keptItems, begun func()) {
			k.start()
			begun()
			must(k.t, unix.Kill(k.keepers()[0], unix.SIGKILL))
		}, "keeper_died", "held the command died"},
		"both die": {func(k *keptItems, begun func()) {
			child := k.child()
			begun()
			k.crash(child)
			k.start()
		}, "cut_off", "does not let it begin again"},
		"a silent keeper dies": {func(k *keptItems, begun func()) {
			k.silenceTimeout = time.Hour // the daemon does not wait for that
			child := k.child()
			begun()
			keeper := k.keepers()[0]
			k.kill(child)
			k.stopped(keeper)
			k.start()
			must(k.t, unix.Kill(keeper, unix.SIGKILL))
		}, "lost", "no keeper has it"},
		"the daemon stops": {func(k *keptItems, begun func()) {
			k.bench.start() // without keepers its commands end with it
			begun()
			must(k.t, k.stop())
		}, "cut_off", "does not let it begin again"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := &keptItems{prepareKept(t, lastLineJobs), ""}
			one, two := k.submit("words_died", script(diesBegins)), k.submit("words_step", script(diesBegins))
			test.interrupt(k, func() {
				k.poll("both commands have begun", func() bool {
					return strings.Contains(k.logNow(one), "begins\n") && strings.Contains(k.logNow(two), "begins\n")
				})
			})
			for _, id := range []statefs.ID{one, two} {
				state := map[bool]statefs.State{true: statefs.Failed, false: statefs.FailedManual}[id == one]
				rec := k.awaitRecord(id, state)
				if rec.Error == nil || rec.Error.Code != test.code || !strings.Contains(rec.Error.Message, test.want) ||
					!strings.HasSuffix(rec.Error.Message, ": begins") {
					t.Errorf("%s: %+v", id, rec.Error)
				}
			}
		})
	}
}
