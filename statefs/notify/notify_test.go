package notify

import "testing"

func TestWakesBeforeAReadAreOne(t *testing.T) {
	t.Parallel()
	c := make(chan struct{}, 1)
	for range 3 {
		Wake(c)
	}
	if len(c) != 1 {
		t.Errorf("%d values, want 1", len(c))
	}
}

func TestOnlyACloseIsClosed(t *testing.T) {
	t.Parallel()
	c := make(chan struct{})
	if IsClosed(c) || IsClosed(nil) {
		t.Error("an open channel or none counts as closed")
	}
	if close(c); !IsClosed(c) {
		t.Error("a closed channel counts as open")
	}
}
