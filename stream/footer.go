package stream

import "context"

// WaitFooter waits until the operation has ended and returns its footer, laid out as in the stream, without a final
// newline. When ctx ends it returns its [context.Cause].
func WaitFooter(ctx context.Context, src Source) ([]byte, error) {
	f, err := newFollower(src, 0)
	if err != nil {
		return nil, err
	}
	for {
		if err := f.refresh(); err != nil {
			return nil, err
		}
		if f.sealed >= 0 {
			return footerLines(f.snap.Footer)
		}
		if _, err := f.wait(ctx, nil); err != nil {
			return nil, err
		}
	}
}
