package term

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// watchReader calls gone once when out has no reader any more: the other end of a pipe or socket is closed,
// or a terminal hung up. A file has readers as long as it exists. The caller must call stop, which ends the
// watch.
func watchReader(out io.Writer, gone func()) (stop func(), err error) {
	f, ok := out.(*os.File)
	if !ok {
		return func() {}, nil
	}
	ends := make([]int, 2)
	if err := unix.Pipe2(ends, unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("watch who reads the output: %w", err)
	}
	over, end := ends[0], ends[1]
	// No events are requested for the output: poll(2) always reports POLLERR and POLLHUP.
	fds := []unix.PollFd{{Fd: int32(f.Fd())}, {Fd: int32(over), Events: unix.POLLIN}}
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			_, err := unix.Poll(fds, -1)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err == nil && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
				gone()
			}
			return
		}
	})
	return func() {
		_ = unix.Close(end) // closing one end wakes the poll on the other
		watching.Wait()
		_ = unix.Close(over)
	}, nil
}
