package term

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/cli/exit"
)

// Following runs a command that may take long and ends it when the reader of its output is gone. Otherwise
// 'jobdir events | head -1' would run until it has something to write. It returns after do has returned.
func (s Streams) Following(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop, err := watchReader(s.Out, func() { cancel(exit.ErrReaderGone) })
	if err != nil {
		return err
	}
	defer stop()
	err = do(ctx)
	if _, outcome := errors.AsType[*exit.CodeError](err); err == nil || outcome ||
		!errors.Is(context.Cause(ctx), exit.ErrReaderGone) {
		return err
	}
	return exit.ErrReaderGone // the error of do is only that ctx has ended
}

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
