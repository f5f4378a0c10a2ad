package machine

import (
	"errors"
	"syscall"
	"testing"
)

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
