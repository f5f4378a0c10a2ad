package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
)

// Every piece of a log has the offset at which it begins, however the log arrives, and nothing is kept of a line
// without an end.
func TestLogLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", maxLogLine/2) + "x" // its last byte would cut a character
	tests := []struct {
		name, log string
		want      []logLine
	}{
		{"nothing", "", nil},
		{"lines", "a\n\n<b> & c\n", []logLine{{Offset: 5, Line: "a"}, {Offset: 7, Line: ""}, {Offset: 8, Line: "<b> & c"}}},
		{"an unfinished one", "a\nb", []logLine{{Offset: 5, Line: "a"}, {Offset: 7, Line: "b", Cut: true}}},
		{"a long one", "x" + long + "\nb\n", []logLine{
			{Offset: 5, Line: "x" + strings.Repeat("é", maxLogLine/2-1), Cut: true},
			{Offset: 5 + maxLogLine - 1, Line: "éx"},
			{Offset: 5 + maxLogLine + 3, Line: "b"},
		}},
		{"no text", strings.Repeat("\x80", maxLogLine+1), []logLine{
			{Offset: 5, Line: strings.Repeat("\ufffd", maxLogLine), Cut: true},
			{Offset: 5 + maxLogLine, Line: "\ufffd", Cut: true},
		}},
	}
	for _, test := range tests {
		for _, piece := range []int{1, 7, maxLogLine * 3} {
			t.Run(fmt.Sprintf("%s by %d", test.name, piece), func(t *testing.T) {
				t.Parallel()
				var out bytes.Buffer
				to := newLogLines(&out, 5)
				for at := 0; at < len(test.log); at += piece {
					if n, err := to.Write([]byte(test.log[at:min(at+piece, len(test.log))])); err != nil || n == 0 {
						t.Fatal(n, err)
					}
					if len(to.rest) >= maxLogLine {
						t.Fatalf("%d bytes are kept", len(to.rest))
					}
				}
				if err := to.end(); err != nil {
					t.Fatal(err)
				}
				if strings.Contains(test.log, "<") && !strings.Contains(out.String(), `"<b> & c"`) {
					t.Errorf("escaped for a web page: %s", out.String())
				}
				in := json.NewDecoder(&out)
				for i := 0; ; i++ {
					var got logLine
					if err := in.Decode(&got); err == io.EOF && i == len(test.want) {
						return
					} else if err != nil || i >= len(test.want) || got != test.want[i] {
						t.Fatalf("line %d: %+v %v", i, got, err)
					}
				}
			})
		}
	}
}
