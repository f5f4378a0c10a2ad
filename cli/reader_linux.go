package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// watchReader calls gone once when nobody can read any more what is written to out: the other end of a pipe or a socket is closed, or a terminal hung up. stop
// ends that, and must be called. A file has readers as long as it exists.
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
	// What is asked of the output is nothing: POLLERR and POLLHUP are told in any case.
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
		_ = unix.Close(end) // which is what the other end waits for
		watching.Wait()
		_ = unix.Close(over)
	}, nil
}
