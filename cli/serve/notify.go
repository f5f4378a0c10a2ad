package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

// notifier reports the state of the daemon to the service manager with the protocol of sd_notify(3). It does
// nothing without a service manager.
type notifier struct {
	conn   net.Conn      // nil: no service manager
	within time.Duration // how soon after the last sign of life the manager restarts the daemon; 0: never
	logger *slog.Logger

	ctx     context.Context //nolint:containedctx // the time of the goroutines
	stop    context.CancelFunc
	running sync.WaitGroup
}

// newNotifier removes the settings of the service manager from the environment. They are for this process
// only; the keeper and its commands outlive it.
func newNotifier(ctx context.Context, logger *slog.Logger) (*notifier, error) {
	n := &notifier{logger: logger}
	n.ctx, n.stop = context.WithCancel(ctx)
	socket, usec, pid := os.Getenv("NOTIFY_SOCKET"), os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID")
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		if err := os.Unsetenv(name); err != nil {
			return nil, err
		}
	}
	if socket == "" {
		return n, nil
	}
	var err error
	if n.conn, err = net.Dial("unixgram", socket); err != nil { //nolint:gosec // the service manager sets it
		return nil, fmt.Errorf("connect to the service manager at NOTIFY_SOCKET=%s: %w", socket, err)
	}
	if usec != "" && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		microseconds, err := strconv.ParseInt(usec, 10, 64)
		if err != nil || microseconds <= 0 {
			return nil, fmt.Errorf("WATCHDOG_USEC=%q is not a number of microseconds", usec)
		}
		n.within = time.Duration(microseconds) * time.Microsecond
	}
	return n, nil
}

// send writes one message. It ignores a manager that cannot be reached.
func (n *notifier) send(message string) {
	if _, err := n.conn.Write([]byte(message)); err != nil {
		n.logger.Warn("cannot notify the service manager", "message", message, "error", err)
	}
}

// serving reports that the daemon accepts operations, and starts the watchdog.
func (n *notifier) serving(where Serving, status string) {
	if n.conn == nil {
		return
	}
	n.send("READY=1\nSTATUS=" + status)
	if n.within > 0 {
		n.running.Go(func() { n.watchdog(where.Socket) })
	}
}

// stopping reports that the daemon stops, once ctx ends.
func (n *notifier) stopping(ctx context.Context) {
	if n.conn == nil {
		return
	}
	n.running.Go(func() {
		select {
		case <-ctx.Done():
			n.send("STOPPING=1")
		case <-n.ctx.Done():
		}
	})
}

// watchdog sends a sign of life twice in each interval of the manager. It withholds the signal only if the
// daemon does not answer /readyz in time. An answer with any status counts as alive: a full disk or a lack of
// descriptors is not a hang.
func (n *notifier) watchdog(socket string) {
	client := &http.Client{Timeout: n.within / 2, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	tick := time.NewTicker(n.within / 2)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(n.ctx, http.MethodGet, "http://localhost/readyz", http.NoBody)
		if err == nil {
			var resp *http.Response
			if resp, err = client.Do(req); err == nil {
				err = resp.Body.Close()
			}
		}
		var netErr net.Error
		if errors.As(err, &netErr) && netErr.Timeout() {
			n.logger.Error("the daemon does not answer its own /readyz: the watchdog is not notified", "error", err)
		} else {
			n.send("WATCHDOG=1")
		}
		select {
		case <-tick.C:
		case <-n.ctx.Done():
			return
		}
	}
}

// close stops the goroutines.
func (n *notifier) close() {
	n.stop()
	n.running.Wait()
	if n.conn != nil {
		_ = n.conn.Close() // no message is left to send
	}
}
