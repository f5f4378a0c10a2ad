package daemon

import (
	"strconv"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/breaker"
	"github.com/jobdir/jobdir/daemon/lanes"
	"github.com/jobdir/jobdir/statefs"
)

// What a lane is configured with.
type (
	// LaneConfig is the configuration of a lane.
	LaneConfig = lanes.LaneConfig
	// BreakerConfig says when a lane pauses itself.
	BreakerConfig = breaker.Settings
)

// reportToBreaker reports the end of an operation's run to the breaker of its lane, with the class of
// its failure.
func (d *Daemon) reportToBreaker(op *operation, class catalog.Class) {
	v, names, exit := lanes.NoVerdict, []string(nil), ""
	switch {
	case op.endCause == statefs.CauseDone:
		v = lanes.Success
	case op.rec.Error != nil && class != catalog.ClassWarn:
		v, names = lanes.Failure, []string{op.rec.Error.Code, string(class)}
		if op.rec.ExitCode != nil && *op.rec.ExitCode != 0 {
			exit = strconv.Itoa(*op.rec.ExitCode)
			names = append(names, exit)
		}
	}
	d.Lanes.RunEnded(laneOf(op.rec), op.id(), v, exit, names...)
}
