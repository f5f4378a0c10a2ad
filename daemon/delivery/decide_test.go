package delivery

import (
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	const pending, manual, delivered = statefs.DeliveryPending, statefs.DeliveryManual, statefs.DeliveryDelivered
	for name, c := range map[string]struct {
		look look
		want action
	}{
		"no record":                         {look{has: true, known: true, notFound: true}, setAside},
		"no record, and no file":            {look{asked: true, notFound: true}, setAside},
		"not ended":                         {look{has: true, known: true}, ignore},
		"not ended, and asked":              {look{has: true, asked: true, drop: true}, ignore},
		"delivered":                         {look{has: true, known: true, ended: true, state: delivered}, remove},
		"delivered, and asked":              {look{has: true, asked: true, ended: true, state: delivered}, remove},
		"not in the record":                 {look{has: true, ended: true}, remove},
		"of another kind":                   {look{has: true, ended: true, state: pending, otherKind: true}, remove},
		"delivered, and the file is gone":   {look{known: true, ended: true, state: delivered}, forget},
		"never there":                       {look{ended: true}, forget},
		"drop":                              {look{has: true, asked: true, drop: true, ended: true, state: pending}, giveUp},
		"drop of what is held":              {look{has: true, manual: true, asked: true, drop: true, ended: true, state: manual}, giveUp},
		"drop, and the file is gone":        {look{asked: true, drop: true, ended: true, state: pending}, giveUp},
		"retry":                             {look{has: true, asked: true, ended: true, state: pending}, retryAsked},
		"retry of what is held":             {look{has: true, manual: true, asked: true, ended: true, state: manual}, retryAsked},
		"retry, and the file is gone":       {look{asked: true, known: true, ended: true, state: pending}, giveUpRemoved},
		"moved back to pending":             {look{has: true, known: true, ended: true, state: manual}, retryMoved},
		"moved to failed_manual":            {look{has: true, manual: true, known: true, ended: true, state: pending}, holdMoved},
		"held":                              {look{has: true, manual: true, ended: true, state: manual}, keepHeld},
		"new":                               {look{has: true, ended: true, state: pending}, keep},
		"known":                             {look{has: true, known: true, ended: true, state: pending}, keep},
		"removed":                           {look{known: true, ended: true, state: pending}, giveUpRemoved},
		"removed while it was held":         {look{known: true, ended: true, state: manual}, giveUpRemoved},
		"neither the memory nor a file has": {look{ended: true, state: pending}, ignore},
	} {
		if got := decide(c.look); got != c.want {
			t.Errorf("%s: action %d, want %d", name, got, c.want)
		}
	}
}
