//go:build !linux

package alarm

import (
	"context"
	"errors"
)

// clockWatch would report when the machine's clock is set. This system has no such notification;
// the sweep checks the clock.
type clockWatch struct{ set chan struct{} }

func openClockWatch() (*clockWatch, error) { return nil, errors.ErrUnsupported }

func (w *clockWatch) run(context.Context) {}
