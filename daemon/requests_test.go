package daemon

import (
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

// Every request that the table of actions lists can be carried out.
func TestEveryRequestHasAHandler(t *testing.T) {
	t.Parallel()
	for _, ask := range statefs.Actions() {
		if spec := ask.Spec(); spec.OnStep && stepRequestHandlers[ask] == nil ||
			!spec.NeedsSteps && requestHandlers[ask] == nil {
			t.Errorf("%s has no handler", ask)
		}
	}
}
