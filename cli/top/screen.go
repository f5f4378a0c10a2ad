package top

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/cli/term"
)

// screen is a terminal that jobdir draws on. close restores its settings.
type screen struct {
	in, out *os.File
	before  *unix.Termios // settings of in; nil if it is no terminal
	resized chan os.Signal
}

// The control sequences are those of ECMA-48 and the alternate screen of xterm, which every current terminal
// has.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	cursorHome  = "\x1b[H"
	eraseLine   = "\x1b[K"
	eraseBelow  = "\x1b[J"
)

// openScreen takes over a terminal. If in is a terminal, it delivers keys immediately.
func openScreen(in io.Reader, out io.Writer) (*screen, error) {
	file, ok := out.(*os.File)
	if !ok {
		return nil, errors.New("draw on the terminal: it is none")
	}
	s := &screen{out: file, resized: make(chan os.Signal, 1)}
	if f, ok := in.(*os.File); ok && term.IsTerminal(f) {
		before, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
		if err != nil {
			return nil, fmt.Errorf("read the settings of the terminal: %w", err)
		}
		keys := *before
		keys.Lflag &^= unix.ICANON | unix.ECHO // Ctrl-C stays a signal
		keys.Cc[unix.VMIN], keys.Cc[unix.VTIME] = 1, 0
		if err := unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, &keys); err != nil {
			return nil, fmt.Errorf("set the terminal: %w", err)
		}
		s.in, s.before = f, before
	}
	signal.Notify(s.resized, syscall.SIGWINCH)
	if _, err := file.WriteString(enterScreen); err != nil {
		s.close()
		return nil, fmt.Errorf("draw on the terminal: %w", err)
	}
	return s, nil
}

// close restores the terminal.
func (s *screen) close() {
	signal.Stop(s.resized)
	_, _ = s.out.WriteString(leaveScreen) // a write error cannot be reported
	if s.before != nil {
		_ = unix.IoctlSetTermios(int(s.in.Fd()), unix.TCSETS, s.before)
	}
}

// keys sends typed keys until ctx or the input ends.
func (s *screen) keys(ctx context.Context, keys chan<- byte) {
	if s.in == nil {
		return
	}
	key := make([]byte, 1)
	for {
		if n, err := s.in.Read(key); n == 0 || err != nil {
			return
		}
		select {
		case keys <- key[0]:
		case <-ctx.Done():
			return
		}
	}
}

// show draws a picture over the previous one, in one write to avoid flicker.
func (s *screen) show(v *view) error {
	if v == nil {
		return nil
	}
	v.width, v.height = 80, 24
	if size, err := unix.IoctlGetWinsize(int(s.out.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 && size.Row > 0 {
		v.width, v.height = int(size.Col), int(size.Row)
	}
	var frame bytes.Buffer
	frame.WriteString(cursorHome)
	for i, line := range v.lines() {
		if i > 0 {
			frame.WriteString("\r\n")
		}
		frame.WriteString(line + eraseLine)
	}
	frame.WriteString(eraseBelow)
	if _, err := s.out.Write(frame.Bytes()); err != nil {
		return fmt.Errorf("draw on the terminal: %w", err)
	}
	return nil
}
