package torture

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the figures of bin/torture.json into docs/reliability.md")

// figures are the counts of the full run, for docs/reliability.md.
var figures report

type report struct {
	mu   sync.Mutex
	rows []figure
}

type figure struct {
	Test   string `json:"test"`
	What   string `json:"what"`
	Number int    `json:"number"`
}

// fullRun is the result of one full run, with its machine.
type fullRun struct {
	At      time.Time `json:"at"`
	Machine string    `json:"machine"`
	Rows    []figure  `json:"figures"`
}

// add records a count under the name of its test.
func (r *report) add(t *testing.T, what string, number int) {
	t.Helper()
	t.Logf("%d %s", number, what)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, figure{t.Name(), what, number})
}

// write prints the figures as a table and writes them to the file that JOBDIR_TORTURE_JSON names.
func (r *report) write() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortStableFunc(r.rows, func(a, b figure) int { return strings.Compare(a.Test, b.Test) })
	for _, row := range r.rows {
		fmt.Printf("%-40s %9d  %s\n", row.Test, row.Number, row.What)
	}
	name := os.Getenv("JOBDIR_TORTURE_JSON")
	if name == "" {
		return nil
	}
	data, err := json.MarshalIndent(fullRun{time.Now().UTC().Truncate(time.Second), thisMachine(), r.rows}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(data, '\n'), 0o600)
}

// thisMachine describes the machine of the run.
func thisMachine() string {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%s/%s, %d processors, kernel %s, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(),
		bytes.TrimSpace(kernel), runtime.Version())
}

const (
	figuresBegin = "<!-- begin figures: written by make figures -->\n"
	figuresEnd   = "<!-- end figures -->\n"
)

// table is the part of the page that is generated from the figures.
func (f fullRun) table() string {
	var out strings.Builder
	fmt.Fprintf(&out,
		"The full run of %s, on %s. A test that finds a loss fails, and then there are no figures: the losses found in this run are 0.\n\n| test | counted | what |\n|---|---|---|\n",
		f.At.Format(time.DateOnly), f.Machine)
	for _, row := range f.Rows {
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", row.Test, grouped(row.Number), row.What)
	}
	return out.String()
}

// grouped writes 12345 as 12,345.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// TestReliabilityPage checks that the pages of the proofs name every test of this package, and with -update writes the
// figures of the last full run into the page on reliability.
func TestReliabilityPage(t *testing.T) {
	t.Parallel()
	page := filepath.Join("..", "..", "docs", "reliability.md")
	text, err := os.ReadFile(page)
	must(t, err)
	before, rest, found := strings.Cut(string(text), figuresBegin)
	written, after, closed := strings.Cut(rest, figuresEnd)
	if !found || !closed {
		t.Fatalf("%s has no place for the figures", page)
	}
	var proofs strings.Builder
	proofs.WriteString(before + after)
	for _, name := range []string{"proofs.md", "proofs-files.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
		must(t, err)
		proofs.Write(text)
	}
	for _, name := range testNames(t) {
		if !strings.Contains(proofs.String(), "`"+name+"`") {
			t.Errorf("docs/proofs.md and docs/proofs-files.md do not say what %s proves", name)
		}
	}
	if !*update {
		return
	}
	data, err := os.ReadFile(filepath.Join("..", "..", "bin", "torture.json"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Fatal("there is no bin/torture.json: run make torture first")
	}
	must(t, err)
	var last fullRun
	must(t, json.Unmarshal(data, &last))
	if table := last.table(); table != written {
		must(t, os.WriteFile(page, []byte(before+figuresBegin+table+figuresEnd+after), 0o644))
	}
}

// testNames returns the tests of this package except that of the page.
func testNames(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	must(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		must(t, err)
		for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`).FindAllSubmatch(source, -1) {
			if name := string(found[1]); name != "TestReliabilityPage" {
				names = append(names, name)
			}
		}
	}
	return names
}
