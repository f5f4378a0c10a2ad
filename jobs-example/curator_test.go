package jobsexample_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Six subscriptions are worked through at once, from the check to the feed. The tools write down when they begin and
// end.
func TestCuratorKeepsLanesLimitAndKeys(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("curator/README.md")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"birds", "cats", "chess", "dogs", "tea", "trains"}
	printed := serveExample(t, "curator", string(readme)).shell("curator", []string{
		`next() { jobdir wait $1 >/dev/null; jobdir logs $1 | sed -n 's/^  Then .*: \(.*\)[.]$/\1/p'; }`,
		`CHECKS=$(for name in ` + strings.Join(names, " ") + `; do jobdir submit curator/check subscription=$name; done)`,
		`for id in $CHECKS; do jobdir wait $(next $(next $(next $id))); done`,
		`cat $LIBRARY/*/feed.txt`,
		`cat $LIBRARY/trace`,
	})
	if got, want := printed[3], strings.Join(names, "-002.mp4\n")+"-002.mp4\n"; got != want {
		t.Errorf("the feeds have\n%s\nwant\n%s", got, want)
	}
	most := map[string]int{"lane cookie": 1, "lane nocookie": 2, "limit yt-dlp": 1}
	for _, name := range names {
		most["key "+name] = 1
	}
	running, begun := map[string]int{}, 0
	for line := range strings.Lines(printed[4]) {
		var what, tool, lane, name string
		if _, err := fmt.Sscan(line, &what, &tool, &lane, &name); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		by := 1
		if what == "end" {
			by = -1
		} else {
			begun++
		}
		for _, place := range []string{"lane " + lane, "limit " + tool, "key " + name} {
			running[place] += by
			if n, ok := most[place]; ok && running[place] > n {
				t.Errorf("%s: %d at once, of %d\n%s", place, running[place], n, printed[4])
			}
		}
	}
	if smooth := 3 * len(names); begun <= smooth {
		t.Errorf("tools were started %d times: none has failed", begun)
	}
	for place, n := range running {
		if n != 0 {
			t.Errorf("%s: %d have begun and not ended", place, n)
		}
	}
}
