package statefs

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestALookForRoomIsGoodForHalfOfWhatItFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r room
		if r.take(1) {
			t.Error("there is room before anybody looked")
		}
		r.found(20)
		if !r.take(8) || r.take(3) || !r.take(2) || r.take(1) {
			t.Error("of 20 that were free, other than 10 were given away")
		}
		r.found(20)
		<-time.After(roomMoment)
		if r.take(1) {
			t.Error("a look is good for longer than a moment")
		}
	})
}
