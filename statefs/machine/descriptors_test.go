package machine

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
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

// While plenty of descriptors are free, one count serves many reservations, but no longer than a second.
func TestOneCountServesManyReservations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file, err := os.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = file.Close() }() // opened for reading
		const counted = -1                  // no process has this limit
		d := NewDescriptors(file)
		want := func(what string, reserve func() error, again bool) {
			t.Helper()
			if err := reserve(); err != nil {
				t.Fatal(err)
			}
			if d.limit != counted != again {
				t.Errorf("%s: counted again is %t, want %t", what, !again, again)
			}
		}
		one := func() error { return d.ForWork(1) }
		want("the first", one, true)
		d.counted, d.free, d.limit = time.Now(), plenty+2*workReserve+readerReserve, counted
		want("work", one, false)
		want("a start", func() error { return d.ForStart(1) }, false)
		want("a reader", d.ForReader, false)
		want("a reader when plenty are left no more", d.ForReader, true)
		d.counted, d.free, d.limit = time.Now(), 1<<30, counted
		<-time.After(countValid - 1) // on the clock of the test
		want("an old count", one, false)
		<-time.After(time.Nanosecond)
		want("a count that is too old", one, true)
	})
}
