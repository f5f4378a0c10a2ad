package alarm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs/notify"
)

// clockWatch reports when the machine's clock is set, and when the machine wakes from sleep. Both
// cancel a kernel timer that never expires.
type clockWatch struct {
	file *os.File
	set  chan struct{}
}

// openClockWatch starts to watch the clock.
func openClockWatch() (*clockWatch, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch the clock: %w", err)
	}
	w := &clockWatch{file: os.NewFile(uintptr(fd), "clock"), set: make(chan struct{}, 1)}
	if err := w.arm(); err != nil {
		return nil, errors.Join(fmt.Errorf("watch the clock: %w", err), w.file.Close())
	}
	return w, nil
}

func (w *clockWatch) arm() error {
	raw, err := w.file.SyscallConn()
	if err != nil {
		return err
	}
	var setErr error
	err = raw.Control(func(fd uintptr) {
		setErr = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET,
			&unix.ItimerSpec{Value: unix.NsecToTimespec(math.MaxInt64)}, nil)
	})
	return errors.Join(err, setErr)
}

// run reports each change on set until ctx ends, and closes the watch.
func (w *clockWatch) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = w.file.Close() }) // which ends the read below
	defer stop()
	var expirations [8]byte
	for {
		_, err := w.file.Read(expirations[:])
		if !errors.Is(err, unix.ECANCELED) {
			return // closed, or the year 2262
		}
		if err := w.arm(); err != nil {
			return // the sweep checks the clock too
		}
		notify.Wake(w.set)
	}
}
