package backend

import (
	"strings"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

func TestResolve(t *testing.T) {
	t.Parallel()
	const first, second, third = "g-a_2025-11-26_13-07-00_p5_r4", "g-a_2025-11-26_13-07-01_p5_r42",
		"g-b_2025-11-26_13-07-01_p5_r142"
	const ended, another = "g-a_2025-10-01_13-07-00_p4_r3", "own_2025-10-01_13-07-01_p4_r42"
	tests := []struct{ name, text, want, failure string }{
		{
			name: "a whole ID, also of one that has ended", text: "x-y_2025-11-26_13-07-00_p5_r9",
			want: "x-y_2025-11-26_13-07-00_p5_r9",
		},
		{name: "its number", text: "p5_r42", want: second},
		{name: "a number that is the end of another", text: "r4", want: first},
		{name: "PID and number", text: "p5_r142", want: third},
		{name: "a beginning", text: "g-b", want: third},
		{name: "a beginning of several", text: "g-a", failure: "matches 2 operations: " + first + ", " + second +
			"; give the whole ID"},
		{name: "a number that a foreign operation bears too", text: "r7", failure: "matches 2 operations: own_"},
		{name: "a number of one that has ended", text: "r3", want: ended},
		{name: "PID and number of one that has ended", text: "p4_r3", want: ended},
		{name: "a number of a live one and of one that has ended", text: "42", failure: "matches 2 operations: " +
			second + ", " + another},
		{name: "PID and number of one of them", text: "p4_r42", want: another},
		{name: "a number without its letter", text: "142", want: third},
		{name: "half a number", text: "r14", failure: "there is no operation"},
		{name: "the end of a PID", text: "4_r3", failure: "there is no operation"},
		{name: "no number at all", text: "r0", failure: "there is no operation"},
		{name: "more than a number holds", text: "r99999999999999999999", failure: "there is no operation"},
		{name: "nothing", text: "", failure: "there is no operation"},
		{name: "a path", text: "../../etc", failure: "there is no operation"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			listed := 0
			r := &resolver{list: func() (ids []statefs.ID, err error) {
				listed++
				for _, text := range []string{
					first, second, third, "own_2025-11-26_13-07-01_p5_r7",
					"foreign_2025-11-26_13-07-01_p6_r7",
				} {
					id, err := statefs.ParseID(text)
					if err != nil {
						return nil, err
					}
					ids = append(ids, id)
				}
				return ids, nil
			}, numbered: func(number uint64) (ids []statefs.ID, err error) {
				for _, text := range []string{second, ended, another} {
					id, err := statefs.ParseID(text)
					if err != nil {
						return nil, err
					}
					if id.Sequence() == number {
						ids = append(ids, id)
					}
				}
				return ids, nil
			}}
			got, err := r.all([]string{test.text})
			switch {
			case test.failure != "":
				if err == nil || !strings.Contains(err.Error(), test.failure) {
					t.Errorf("error %v, want %q", err, test.failure)
				}
			case err != nil:
				t.Fatal(err)
			case got[0].String() != test.want:
				t.Errorf("got %s, want %s", got[0], test.want)
			}
			if listed > 1 {
				t.Errorf("listed %d times", listed)
			}
		})
	}
}
