package param

import (
	"testing"
	"time"
)

func TestDurationsAreWrittenShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		6 * time.Hour: "6h", 90 * time.Minute: "1h30m", 30 * time.Minute: "30m",
		10 * time.Second: "10s", 0: "0s", 3605 * time.Second: "1h0m5s", 300 * time.Millisecond: "300ms",
	} {
		if got := FormatDuration(d); got != want {
			t.Errorf("%s is written %s", d, got)
		}
	}
}
