package cli

import (
	"context"
	"errors"
)

// errReaderGone ends a command when its output has no reader any more.
var errReaderGone = errors.New("the reader of the output has closed it")

// following runs a command that may take long and ends it when the reader of its output is gone. Otherwise
// 'jobdir events | head -1' would run until it has something to write. It returns after do has returned.
func (a *app) following(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop, err := watchReader(a.streams.Out, func() { cancel(errReaderGone) })
	if err != nil {
		return err
	}
	defer stop()
	err = do(ctx)
	if _, outcome := errors.AsType[*codeError](err); err == nil || outcome ||
		!errors.Is(context.Cause(ctx), errReaderGone) {
		return err
	}
	return errReaderGone // the error of do is only that ctx has ended
}
