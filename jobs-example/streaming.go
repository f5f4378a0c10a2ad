package jobsexample

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/work"
)

var errSimulated = errors.New("Simulated processing error") //nolint:staticcheck // shown to users as it is written here

// streaming01 works through files that do not exist: 200 ms for each, and one in ten fails. Sleep is a checkpoint all
// along, so a pause or a cancel takes effect in the middle of a file.
func streaming01(_ context.Context, op *work.Op) error {
	total := int(integer(op.Params(), "files"))
	for i := 1; i <= total; i++ {
		name := fmt.Sprintf("document_%03d.pdf", i)
		if op.Finished(name) {
			continue // before a restart
		}
		file := op.File(i, total, name)
		if err := op.Sleep(200 * time.Millisecond); err != nil {
			return err
		}
		if rand.IntN(10) == 0 {
			file.Fail(errSimulated, fmt.Sprintf("Simulated error for '%s'", name))
			continue
		}
		file.OK(slog.Int64("size_bytes", 10_000+rand.Int64N(490_001)))
	}
	return nil
}

// streaming01Total is known from the parameters alone, so the header of the stream can say it.
func streaming01Total(params catalog.Params) *int64 {
	total := integer(params, "files")
	return &total
}
