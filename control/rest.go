package control

import (
	"context"

	"github.com/jobdir/jobdir/statefs"
)

// waitsForPerson reports whether an operation goes on only when somebody acts: whoever waits for its end would wait for that person.
func waitsForPerson(state statefs.State) bool {
	return state == statefs.FailedManual || state == statefs.WaitingApproval
}

// awaitRest waits until an operation has ended or waits for a person. The error is the cause of ctx, or why that cannot be told.
func awaitRest(ctx context.Context, f *follower) error {
	for {
		snap, err := f.Snapshot()
		if err != nil {
			return err
		}
		if snap.Ended || waitsForPerson(f.state) {
			return nil
		}
		select {
		case <-f.Wake():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
