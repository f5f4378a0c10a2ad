package control

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

// follows is a followed operation, and how it is followed.
type follows struct {
	id     statefs.ID
	stream bool
}

// Follow counts the followers by operation, and by whether they read its stream.
func (d *daemonStatus) Follow(id statefs.ID, wake func()) (leave func()) {
	who := follows{id, wake != nil}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.follow == nil {
		d.follow = make(map[follows]int)
	}
	d.follow[who]++
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.follow[who]--; d.follow[who] == 0 {
			delete(d.follow, who)
		}
	}
}

// untilFollowed waits until exactly this is followed according to the daemon.
func (r *rig) untilFollowed(want ...follows) {
	r.t.Helper()
	played := r.fakeDaemon()
	r.until(fmt.Sprintf("%v is followed", want), func() bool {
		played.mu.Lock()
		defer played.mu.Unlock()
		if len(played.follow) != len(want) {
			return false
		}
		for who, times := range played.follow {
			if times != 1 || !slices.Contains(want, who) {
				return false
			}
		}
		return true
	})
}

// The daemon knows who follows an operation, by its stream or by its events, as long as the connection lives.
func TestDaemonKnowsFollowers(t *testing.T) {
	t.Parallel()
	r := withEvents(t)
	one, two := r.submit(), r.submit()
	r.follow("/api/v1/events?job=streaming01").next() // names no operation
	r.do("HEAD", "/api/v1/events?id="+one.id.String(), "")
	both := r.follow("/api/v1/events?id=" + one.id.String() + "," + two.id.String())
	r.untilFollowed(follows{one.id, false}, follows{two.id, false})
	must(t, both.resp.Body.Close())
	r.untilFollowed()

	socket := r.socket("?id=" + two.id.String())
	r.untilFollowed(follows{two.id, false})
	must(t, socket.CloseNow())
	r.untilFollowed()

	stream := r.open("GET", one.path("/stream"), "")
	r.untilFollowed(follows{one.id, true})
	must(t, stream.Body.Close())
	r.untilFollowed()
}
