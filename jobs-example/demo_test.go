package jobsexample_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What make demo runs, in both of its forms: the stream by curl, and by the program itself where there is no curl.
func TestDemo(t *testing.T) {
	t.Parallel()
	cases := map[string]bool{"without curl": false}
	if _, err := exec.LookPath("curl"); err == nil {
		cases["with curl"] = true
	}
	for name, curl := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			temp := t.TempDir()
			cmd := exec.CommandContext(t.Context(), "sh", "../tools/demo", program(t)+"/jobdir")
			cmd.Env = append(os.Environ(), "TMPDIR="+temp)
			if !curl {
				cmd.Env = append(cmd.Env, "PATH="+toolsWithoutCurl(t))
			}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var markers []string
			for _, m := range regexp.MustCompile(`(?m)^testrouter-streaming01_\S+\.([a-z_]+)$`).FindAllStringSubmatch(string(out), -1) {
				if !slices.Contains([]string{"ndjson", "json", "log", "progress"}, m[1]) {
					markers = append(markers, m[1])
				}
			}
			if want := []string{"running", "paused", "running"}; !slices.Equal(markers, want) {
				t.Errorf("ls showed the markers %q, want %q\n%s", markers, want, out)
			}
			if !strings.Contains(string(out), `"result": "cancelled"`) {
				t.Errorf("the demo said\n%s", out)
			}
			left, err := os.ReadDir(temp)
			if err != nil || len(left) > 0 {
				t.Errorf("the demo left %v behind, %v", left, err)
			}
		})
	}
}

// toolsWithoutCurl makes a folder with everything the demo needs but curl.
func toolsWithoutCurl(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name := range strings.FieldsSeq("awk cat dirname env grep ls mkfifo mktemp rm sed sh sleep tee touch") {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, dir+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
