package cli

import (
	"slices"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// However it is written, --wait means the same at each command.
func TestWaitFlag(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args   []string
		want   waitFlag
		atMost time.Duration
		rest   []string
	}{
		{[]string{"r42"}, waitFlag{}, 0, []string{"r42"}},
		{[]string{"--wait", "r42"}, waitFlag{given: true}, maxAnswerWait, []string{"r42"}},
		{[]string{"r42", "--wait"}, waitFlag{given: true}, maxAnswerWait, []string{"r42"}},
		{[]string{"--wait=30s", "r42"}, waitFlag{given: true, limit: 30 * time.Second}, 30 * time.Second, []string{"r42"}},
		{
			[]string{"--wait", "1h30m", "r42"},
			waitFlag{given: true, limit: 90 * time.Minute},
			90 * time.Minute,
			[]string{"r42"},
		},
		{
			[]string{"r42", "--wait", "1.5s"},
			waitFlag{given: true, limit: 1500 * time.Millisecond},
			1500 * time.Millisecond,
			[]string{"r42"},
		},
		{[]string{"--wait", "42"}, waitFlag{given: true}, maxAnswerWait, []string{"42"}},
		{[]string{"--wait=0s", "r42"}, waitFlag{}, 0, []string{"r42"}},
		{[]string{"--wait=2d"}, waitFlag{given: true, limit: 48 * time.Hour}, 48 * time.Hour, nil},
		{[]string{"--", "--wait", "3s"}, waitFlag{}, 0, []string{"--wait", "3s"}},
	} {
		var got waitFlag
		cmd := &cobra.Command{Use: "x"}
		addWait(cmd, &got, "it is over")
		if err := cmd.ParseFlags(joinWait(c.args)); err != nil {
			t.Errorf("%v: %v", c.args, err)
			continue
		}
		if rest := cmd.Flags().Args(); got != c.want || got.atMost() != c.atMost || !slices.Equal(rest, c.rest) {
			t.Errorf("%v: %+v, at most %s, left %q; want %+v", c.args, got, got.atMost(), rest, c.want)
		}
	}
	for _, text := range []string{"-1s", "soon", "", "42", "1s2"} {
		if err := new(waitFlag).Set(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
