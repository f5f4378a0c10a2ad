package history

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// TestQuestionsDoNotWait queries in a synctest bubble. Its clock moves only while every goroutine
// waits for a timer, so a query that takes time has waited for one.
func TestQuestionsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		ask := func(what string, answer func() error) {
			t.Helper()
			<-time.After(time.Second) // of the bubble: the writer has paused after its last transaction
			began := time.Now()
			for range 3 {
				must(t, answer())
			}
			if waited := time.Since(began); waited != 0 {
				t.Errorf("%s waited for a timer: %v in three questions", what, waited)
			}
		}
		questions := func(when string) {
			ask(when+", newest page", func() error { _, err := r.List(t.Context(), &Query{Limit: 50}, viewOf()); return err })
			ask(when+", count", func() error {
				_, err := r.List(t.Context(), &Query{Statuses: []statefs.State{statefs.Completed}}, viewOf())
				return err
			})
			ask(when+", retention", func() error {
				_, err := r.Plan(t.Context(), Retention{Count: 1}, Guards{}, r.clock)
				return err
			})
		}
		questions("empty")
		for range 3 {
			r.end("a", statefs.Completed)
		}
		questions("with ended operations")
		r.stop() // within the bubble
	})
}
