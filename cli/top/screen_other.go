//go:build !linux

package top

import (
	"context"
	"errors"
	"io"
	"os"
)

// screen is a terminal that is drawn on; there is none on this system.
type screen struct{ resized chan os.Signal }

func openScreen(io.Reader, io.Writer) (*screen, error) {
	return nil, errors.New("drawing on a terminal is for Linux; --once prints one picture")
}

func (*screen) close()                            {}
func (*screen) keys(context.Context, chan<- byte) {}
func (*screen) show(*view) error                  { return nil }
