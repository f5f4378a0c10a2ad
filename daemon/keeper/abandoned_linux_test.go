package keeper

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Site is a storage directory with keepers, for tests outside of the package.
type Site = site

// LogName returns the name of a keeper's log.
var LogName = logName

// Impatient makes a storage whose keepers use the given shutdownReportTimeout and
// orphanedReportTimeout.
func Impatient(t *testing.T, dir, farewell, forlorn string) *Site {
	t.Helper()
	s := newSiteAt(t, dir)
	s.options.Program = append(program(dir, time.Millisecond, newestProtocol), farewell, forlorn)
	return s
}

// Eventually waits for a condition that no event reports.
func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	eventually(t, what, ok)
}

// Abandoned starts a command on a site and closes the pool. It returns a function that ends the
// command, the PID of the keeper, and a function that waits for the keeper's end.
func (s *site) Abandoned(t *testing.T) (end func(), keeper int, ended func()) {
	t.Helper()
	p := s.open(t)
	leave := newFIFO(t)
	if _, err := p.Start(t.Context(), s.job(t, 1, "-until", leave.path, "-exit", "7").Command); err != nil {
		t.Fatal(err)
	}
	keeper = p.PIDs()[0]
	fd, err := unix.PidfdOpen(keeper, 0)
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	return func() { leave.release(t) }, keeper, func() {
		t.Helper()
		defer func() { _ = unix.Close(fd) }() // nothing was written through it
		eventually(t, "the keeper ends", func() bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds()))
			return n == 1 && err == nil
		})
	}
}
