package term

import (
	"context"
	"errors"

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
