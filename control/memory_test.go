package control

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
)

// heapInUse returns the bytes of live objects. The second collection empties pools.
func heapInUse() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// stacksInUse returns the bytes of goroutine stacks.
func stacksInUse() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.StackInuse
}

// An idle open stream costs little more than a waiting handler of net/http.
func TestIdleStreamIsSmall(t *testing.T) {
	const streams = 400
	bare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "<log>\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	floor := measureStreams(t, streams, bare.Listener.Addr(), "/")
	bare.CloseClientConnections()
	bare.Close()

	r := setup(t)
	w := r.submit().start()
	r.get(w.path("")) // one-time allocations
	for _, format := range formats[:2] {
		ours := measureStreams(t, streams, r.tcp.Addr(), w.path("/stream?format="+format))
		r.until("the readers to be gone", func() bool { return r.followers(w.id) == 0 })
		t.Logf("%s: %d bytes for each idle stream, %d for a bare handler", format, ours, floor)
		if ours-floor > idleStream {
			t.Errorf("%s: an idle stream costs %d bytes, a bare handler %d", format, ours, floor)
		}
	}
}

// measureStreams opens streams of one address and returns the cost of each while it is idle, including both ends of its
// socket.
func measureStreams(t *testing.T, streams int, addr net.Addr, path string) int64 {
	t.Helper()
	before, stacks := heapInUse(), stacksInUse()
	conns := make([]net.Conn, streams)
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	in := bufio.NewReader(nil)
	for i := range conns {
		c, err := net.Dial(addr.Network(), addr.String())
		must(t, err)
		conns[i] = c
		must(t, c.SetDeadline(time.Now().Add(patience)))
		_, err = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
		must(t, err)
		in.Reset(c)
		for line := ""; !strings.HasPrefix(line, "<log>") && !strings.HasPrefix(line, "id: "); {
			line, err = in.ReadString('\n')
			must(t, err)
		}
	}
	return (int64(heapInUse()) - int64(before) + int64(stacksInUse()) - int64(stacks)) / int64(streams)
}
