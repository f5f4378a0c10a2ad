package cli

import (
	"context"
	"errors"
)

// errReaderGone is why a command ends whose output nobody reads any more.
var errReaderGone = errors.New("nobody reads the output any more")

// following runs a command that may go on for long, and ends it when the reader of its output is gone: 'jobdir events | head -1' would otherwise stay until it
// has something to write. It returns when do has returned.
func (a *app) following(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop, err := watchReader(a.streams.Out, func() { cancel(errReaderGone) })
	if err != nil {
		return err
	}
	defer stop()
	err = do(ctx)
	if _, outcome := errors.AsType[*codeError](err); err == nil || outcome || !errors.Is(context.Cause(ctx), errReaderGone) {
		return err
	}
	return errReaderGone // and what went wrong is that ctx has ended
}
