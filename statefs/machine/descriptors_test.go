package machine

import (
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestDescriptorBudgetIsHalfOfWhatWasFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r descriptorBudget
		if r.reserve(1) {
			t.Error("there is room before anybody looked")
		}
		r.refresh(20)
		if !r.reserve(8) || r.reserve(3) || !r.reserve(2) || r.reserve(1) {
			t.Error("of 20 that were free, other than 10 were given away")
		}
		r.refresh(20)
		<-time.After(descriptorBudgetTTL)
		if r.reserve(1) {
			t.Error("a look is good for longer than a moment")
		}
	})
}

func TestErrorOfFewDescriptorsNamesTheLimitTheUseAndTheReserve(t *testing.T) {
	t.Parallel()
	err := descriptorError(121, 160, 128, nil)
	const want = "too many open files: the limit is 160, 39 are in use, and 128 are kept free for work that runs or is starting; " +
		"raise the limit (ulimit -n, LimitNOFILE= in a unit of systemd)"
	if err == nil || err.Error() != want || !errors.Is(err, syscall.EMFILE) {
		t.Errorf("%v, want %s", err, want)
	}
	if err := descriptorError(128, 160, 128, nil); err != nil {
		t.Errorf("there is room, and the error is %v", err)
	}
}
