//go:build !linux

package daemon

import (
	"context"
	"errors"
)

// clockWatch tells when somebody sets the clock of the machine. This system does not say; the sweep looks at the clock.
type clockWatch struct{ set chan struct{} }

func openClockWatch() (*clockWatch, error) { return nil, errors.ErrUnsupported }

func (w *clockWatch) run(context.Context) {}
