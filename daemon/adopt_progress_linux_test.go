package daemon

import (
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

// The next daemon knows the progress of a command and does not count it as new: neither its phase
// nor a number that a later line of the log has overtaken.
func TestProgressOutlivesAKilledDaemon(t *testing.T) {
	t.Parallel()
	k := prepareKept(t, allKept)
	child := k.child()
	first, second, third := k.fifo("first"), k.fifo("second"), k.fifo("third")
	id := k.submit("script", script(`echo "1 10 SEARCHING" >>"$JOBDIR_PROGRESS"; read x <`+first+
		`; echo "[ 3 / 10 ] on the way"; read x <`+second+`; echo more; read x <`+third))
	said := func(what string, so func(statefs.Progress) bool) (p statefs.Progress) {
		t.Helper()
		k.poll(what, func() bool {
			var err error
			p, err = k.tree.ReadProgress(id)
			return err == nil && so(p)
		})
		return p
	}
	said("the phase is known", func(p statefs.Progress) bool { return p.Phase == "SEARCHING" })
	k.open(first)
	before := said("the item is known", func(p statefs.Progress) bool { return p.Done == 3 })
	k.kill(child)
	k.start()
	k.open(second)
	after := said("there is another sign of life", func(p statefs.Progress) bool { return p.At.After(before.At) })
	if after.Done != 3 || after.Phase != "SEARCHING" {
		t.Errorf("%+v, want what was said before: %+v", after, before)
	}
	k.open(third)
	k.awaitEnd(id)
}
