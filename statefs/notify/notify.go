// Package notify has the two uses of a channel that carries no values: to wake the goroutine that reads it, and to tell
// by its close that something has happened. What that is, and who closes the channel, its callers decide.
package notify

// Wake puts a value into c unless c is full. It never blocks, and wakes the reader once for many calls.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// IsClosed reports whether c is closed. Nothing is ever sent on it.
func IsClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
