package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// The rules of the source tree that no compiler checks: who may import whom, where a library lives, how long a file and
// how wide a line may get, what no file may say. They read the tree as text and need no build, so they also hold for
// code of other systems.

const module = "github.com/jobdir/jobdir"

var update = flag.Bool("update", false,
	"rewrite what is generated from the tables here: the depguard rules of .golangci.yml")

// anything in a row lets a package import all packages below its level, and all libraries.
const anything = "*"

// row says what one package may import in code that ships. Imports point down: each name in ours must have a
// lower level than the row itself.
type row struct {
	pkg   string   // folder; a trailing /... covers the folders below it
	level int      // 0 is the bottom
	ours  []string // packages of this module
	third []string // libraries, by the start of their import path
	why   string
}

const (
	fsnotify   = "github.com/fsnotify/fsnotify"
	renameio   = "github.com/google/renameio/v2"
	atomic     = "github.com/natefinch/atomic"
	httprouter = "github.com/julienschmidt/httprouter"
	cobra      = "github.com/spf13/cobra"
	pflag      = "github.com/spf13/pflag"
	yaml       = "github.com/goccy/go-yaml"
	doublestar = "github.com/bmatcuk/doublestar/v4"
	xsys       = "golang.org/x/sys"
	bbolt      = "go.etcd.io/bbolt"
	gocron     = "github.com/netresearch/go-cron"
	websocket  = "github.com/coder/websocket"
	exprlang   = "github.com/expr-lang/expr"
	minio      = "github.com/minio/minio-go/v7"
	gofuse     = "github.com/hanwen/go-fuse/v2" // for tests only: no package that ships may import its homes
)

var imports = []row{
	{
		"statefs/steps", 0, nil, nil,
		"which step comes next, as a decision without clock and files; the records have its words in them, so it knows nothing of them",
	},
	{
		"statefs/machine", 0, nil,
		[]string{xsys},
		"asks the system about this machine and its processes; what an operation is it does not know",
	},
	{"statefs/notify", 0, nil, nil, "two functions on channels without values; what a wake or a close means it does not know"},
	{
		"statefs/files", 0, nil,
		[]string{renameio, atomic, xsys},
		"the one place that replaces, renames and syncs files; what their names and contents mean it does not know",
	},
	{
		"statefs/journal", 1,
		[]string{"statefs/files", "statefs/machine", "statefs/notify"},
		nil,
		"numbered lines in preallocated files, durable many at a time; what a line means it does not know",
	},

	{
		"statefs/commit", 2,
		[]string{"statefs/journal", "statefs/notify"},
		nil,
		"changes of operations become durable in the journal, and files follow; what a record holds it does not know",
	},

	{
		"statefs", 3,
		[]string{"statefs/steps", "statefs/machine", "statefs/files", "statefs/journal", "statefs/commit"},
		[]string{xsys},
		"names, records and transitions: the vocabulary of all others, so it knows none of them",
	},
	{"statefs/api", 4, []string{"statefs", "statefs/steps"}, nil, "the messages between a daemon and its clients, written once; clients on other systems link it, so it needs nothing else"},
	{
		"statefs/backup", 4,
		[]string{"statefs", "statefs/files", "statefs/journal"},
		nil,
		"copies a storage while a daemon changes it; of an operation it knows the marker, and which files it has",
	},
	{
		"statefs/watch", 3,
		[]string{"statefs/notify"},
		[]string{fsnotify, xsys},
		"turns events into look now for any folder; it does not know what the names mean",
	},
	{
		"catalog/schedule", 3, nil,
		[]string{gocron},
		"arithmetic of times, which needs nothing; below the job definitions, because a line that is never due is a mistake of theirs",
	},
	{"catalog/phrase", 0, nil, nil, "the words of messages: what was meant, and text from outside cut to size"},
	{
		"catalog/param", 3,
		[]string{"catalog/phrase"},
		nil,
		"the values that parameters have, as text, JSON and in the one form in which equal ones are equal; it knows no jobs",
	},
	{
		"catalog/condition", 4,
		[]string{"catalog/param", "catalog/phrase", "statefs/steps"},
		[]string{exprlang},
		"a condition is compiled against the names that it may use, and evaluated against their values; it knows no job files",
	},
	{
		"catalog/yamlfile", 4,
		[]string{"catalog/param", "catalog/phrase"},
		[]string{yaml},
		"the text of a file becomes values with their places, hints and problems; which keys a job has it does not know",
	},
	{"control/web", 3, nil, nil, "embedded files and nothing else"},
	{"control/front", 3, nil, []string{httprouter, websocket}, "what every HTTP server needs that strangers can reach: who gets in, how much, and how a refusal reads; it knows nothing of jobs"},
	{
		"internal/faultfs", 3, nil,
		[]string{gofuse, xsys},
		"a disk that forgets and fails, for tests; it knows nothing of what is written to it",
	},
	{
		"internal/s3test", 3,
		[]string{"internal/addrtest"},
		[]string{minio},
		"servers of others that speak S3, for tests; it asks them with a client, and knows nothing of what delivers to them",
	},
	{"internal/browsertest", 3, nil, nil, "a real browser for tests; what the page is it does not know"},
	{"internal/addrtest", 0, nil, nil, "an address of loopback that stays a test's while its server is down, for tests"},
	{"internal/wordtest", 0, nil, []string{"go/ast", "go/parser", "go/token"}, "reads the comments of constants as text, for tests that generate pages from them"},
	{"internal/prooftest", 0, nil, nil, "how many rounds the tests of promises do, by one variable of the environment"},
	{"internal/fakejob", 3, nil, []string{xsys}, "a child program for tests, which behaves like a stranger's"},

	{
		"internal/blockrec", 4,
		[]string{"internal/faultfs"},
		[]string{gofuse, xsys},
		"a block device that writes down its writes and flushes, for tests; it asks the other disk whether this machine can mount one",
	},
	{
		"daemon/keeper", 4,
		[]string{"statefs", "statefs/machine", "statefs/files", "statefs/notify"},
		[]string{xsys},
		"holds process groups; it decides nothing and knows no jobs, so it can outlive a daemon of another version; its exit reports are files, which statefs alone writes",
	},
	{
		"stream", 4,
		nil,
		nil,
		"the stream format is pure text over readers and writers, usable by any client",
	},
	{
		"daemon/breaker", 4,
		[]string{"statefs"},
		nil,
		"when a lane stops itself, as a decision without clock and files; of the vocabulary it needs the ID alone",
	},
	{
		"catalog", 5,
		[]string{
			"statefs", "catalog/condition", "catalog/param", "catalog/phrase", "catalog/schedule", "catalog/yamlfile", "statefs/steps",
			"statefs/api", "statefs/files", "daemon/outbox",
		},
		[]string{yaml, doublestar}, // its tests read job files with the library too
		"what jobs exist is independent of what runs, and how one is described to clients; the conditions of steps are compiled where they are read; a kind of target declares its keys beside its deliveries",
	},
	{
		"daemon/events", 5,
		[]string{"statefs", "statefs/api", "statefs/files", "statefs/notify"},
		nil,
		"a log of what happens, which the daemon writes and control reads; it decides nothing and starts nothing",
	},
	{
		"daemon/history", 4,
		[]string{"statefs", "statefs/machine", "statefs/files", "statefs/notify"},
		[]string{bbolt},
		"an index of what has ended, made from the records; it knows neither what runs nor HTTP",
	},
	{
		"daemon/effect", 4,
		[]string{"statefs"},
		nil,
		"clients that wait for what becomes of their requests, in memory; what becomes of them the daemon decides",
	},
	{"daemon/indexheap", 0, nil, nil, "a heap from which any element can be removed; what its elements are it does not know"},
	{"daemon/alarm", 3, []string{"daemon/indexheap", "statefs/notify"}, []string{xsys}, "rings when a deadline comes; what its keys mean it does not know"},

	{
		"daemon/counts", 5,
		[]string{"statefs", "statefs/api"},
		nil,
		"counts and percentiles, as memory and arithmetic alone, and the condition of a daemon; of the vocabulary it needs the states, of the watch its mode",
	},
	{
		"daemon/queue", 4,
		[]string{"statefs", "daemon/indexheap"},
		nil,
		"what starts next, as a decision without clock, files or locks; of the vocabulary it needs the ID alone",
	},
	{
		"daemon/outbox", 4,
		[]string{"statefs", "statefs/files", "daemon/indexheap"},
		[]string{minio, xsys},
		"brings things to targets: when, as a decision without clock and files, and how; what a job or a record is it does not know",
	},
	{
		"daemon/live", 7,
		[]string{
			"statefs", "statefs/files", "statefs/steps", "daemon/history", "daemon/counts", "daemon/decide", "daemon/queue",
		},
		nil,
		"what is known of each live operation, as one table in memory; what leads to a change it does not know",
	},

	{
		"daemon/submit", 6,
		[]string{"statefs", "catalog", "catalog/param", "catalog/phrase", "statefs/steps", "statefs/notify"},
		nil,
		"what HTTP, a list and a file ask for becomes one submission, by one set of rules; it knows neither of them",
	},
	{
		"daemon/acts", 6,
		[]string{"statefs", "catalog", "statefs/steps"},
		nil,
		"what a person may do about a step is checked by one set of rules, by HTTP, the command line and the daemon; it reads and writes nothing",
	},

	{
		"daemon/decide", 6,
		[]string{"statefs", "statefs/steps", "catalog", "daemon/queue"},
		nil,
		"what an observation means for an operation, as functions of data alone; the daemon observes before and carries out after",
	},

	{
		"daemon/work", 6,
		[]string{"statefs", "statefs/files", "statefs/machine", "statefs/steps", "catalog", "catalog/param", "daemon/keeper", "stream", "statefs/notify"},
		nil,
		"the work of one run: handlers, commands, items, and what they report; it knows neither states nor what follows an end",
	},

	{
		"control", 7,
		[]string{
			"statefs", "statefs/watch", "daemon/history", "daemon/events", "stream",
			"catalog/param", "statefs/api",
			"catalog", "daemon/submit", "daemon/acts", "daemon/effect", "control/web", "control/front", "daemon/counts", "statefs/steps",
			"statefs/machine", "statefs/files", "statefs/notify",
		},
		[]string{websocket},
		"HTTP writes requests and reads files, and tells of events; its tests are clients of a WebSocket; it meets the daemon on disk and through interfaces of its own",
	},
	{
		"daemon/lanes", 7,
		[]string{
			"statefs", "statefs/watch", "daemon/alarm", "daemon/breaker", "daemon/events", "daemon/queue", "catalog/param",
			"daemon/submit", "stream", "statefs/api", "statefs/notify",
		},
		nil,
		"what the files of lanes/ and the breakers mean for the queue, and what is told of lanes; it knows no operation",
	},
	{
		"daemon/delivery", 7,
		[]string{"statefs", "statefs/api", "statefs/files", "statefs/watch", "daemon/events", "daemon/outbox", "catalog", "statefs/notify"},
		nil,
		"what is owed to targets, by the files of outbox/ and the records; when and how it is sent it leaves to daemon/outbox",
	},
	{
		"daemon/trigger", 7,
		[]string{
			"statefs", "statefs/api", "statefs/files", "statefs/watch", "daemon/alarm", "catalog", "catalog/schedule",
			"daemon/submit", "stream", "statefs/notify",
		},
		nil,
		"what submits by itself: slots of schedules, files in new/, the job that follows; what runs it does not know",
	},

	{
		"daemon", 8,
		[]string{
			"statefs", "statefs/watch", "daemon/history", "daemon/events", "stream", "catalog/schedule",
			"catalog/param", "statefs/api", "statefs/steps", "statefs/machine", "statefs/files",
			"catalog", "daemon/submit", "daemon/acts", "daemon/decide", "daemon/effect", "daemon/keeper", "daemon/queue", "daemon/breaker",
			"daemon/counts", "daemon/live", "daemon/alarm", "daemon/lanes", "daemon/trigger", "daemon/delivery", "daemon/work", "statefs/notify",
		},
		[]string{xsys},
		"decides and runs; whether there is an HTTP server is no concern of it",
	},
	{
		"client", 7,
		[]string{"statefs", "statefs/api", "stream", "statefs/steps", "statefs/machine"},
		nil,
		"users build it into their programs, also on other systems: no server code behind it",
	},

	{"jobs-example", 9, []string{"daemon/work", "catalog", "statefs"}, nil, "handlers as a user writes them"},
	{
		"cli/exit", 8,
		[]string{"statefs", "client"},
		nil,
		"the exit codes and the errors that lead to them; it prints nothing",
	},
	{
		"cli/term", 9,
		[]string{"cli/exit", "statefs"},
		[]string{xsys},
		"how all commands print; what a command does it does not know",
	},
	{
		"cli/config", 10,
		[]string{
			"cli/exit", "cli/term", "statefs", "catalog", "catalog/param", "control/front", "daemon/breaker", "daemon/events",
			"daemon/history", "daemon/lanes", "daemon/outbox", "daemon/queue", "daemon/submit",
		},
		[]string{pflag, yaml},
		"the table of settings, and what it is read from; it starts nothing, and yaml is for the configuration file",
	},
	{
		"cli/top", 10,
		[]string{"cli/exit", "cli/term", "client", "statefs", "statefs/api"},
		[]string{xsys},
		"draws what a daemon tells it; how to reach one it does not know",
	},
	{
		"cli/backend", 11,
		[]string{
			"cli/config", "cli/exit", "statefs", "statefs/steps", "client", "catalog", "daemon/acts", "daemon/history",
			"daemon/submit",
		},
		nil,
		"what commands work on, a daemon or the directory; it prints nothing and knows no command",
	},
	{"cli/serve", 11, []string{anything}, nil, "the only place that wires the daemon; it knows no other command"},
	{"cli", 12, []string{anything}, []string{cobra, pflag, xsys}, "the commands; what they work on they are given"},
	{".", 13, []string{"cli", "jobs-example"}, nil, "main: the exit code, and the example handlers it registers"},
	{"examples/...", 13, []string{anything}, []string{anything}, "programs of users of the library"},
	{"jobs-example/...", 13, []string{anything}, []string{anything}, "example programs of users of the library"},
	{"internal/mutants", 13, nil, nil, "changes a copy of the sources as text and runs its tests"},
	{"internal/torture", 13, []string{anything}, []string{anything}, "kills, cuts and fails the whole program; tests only"},
	{"bench", 13, []string{anything}, []string{anything}, "measures everything beside the bare system and bare libraries"},
	{
		"bench/peers", 13, nil,
		[]string{anything},
		"measures other systems as bench measures jobdir; it imports nothing of the program",
	},
}

// testOnly are the libraries that no shipped code links.
var testOnly = []string{
	"github.com/anishathalye/porcupine",
	"github.com/gowebpki/jcs",
	"github.com/rogpeppe/go-internal", // runs the command line as a user types it
	"github.com/santhosh-tekuri/jsonschema/v6",
	"go.uber.org/goleak",
	"pgregory.net/rapid",
}

// separateModule is a Go module of the tree beside the program's own.
type separateModule struct {
	dir    string
	agrees bool   // whether it has the same version as the others of each module that they share
	why    string // it is one
}

var separate = []separateModule{
	{"bench", true, "a program built on jobdir does not depend on its measurements"},
	{"bench/peers", true, "the systems measured beside jobdir bring large clients and servers"},
	{"jobs-example/outbox-s3", true, "only this example needs the driver of MongoDB"},
	{"jobs-example/outbox-s3/testserver", false, "a server of another project, with the versions that its makers tested"},
	{"tools", false, "linters of other projects, with the versions that their makers tested"},
}

// moduleOf returns the folder of the module that holds a file, "." for the program's module. Modules may be nested.
func moduleOf(name string) string {
	deepest := "."
	for _, m := range separate {
		if strings.HasPrefix(name, m.dir+"/") && len(m.dir) > len(deepest) {
			deepest = m.dir
		}
	}
	return deepest
}

// goFile is one parsed .go file of any module.
type goFile struct {
	name  string // from the root, with slashes
	dir   string // folder of the package, "." for the root
	test  bool   // _test.go, or in a package whose name ends in "test"
	outer bool   // package x_test: outside of every import graph, so it may start what stands above x
	lines int
	ast   *ast.File
}

func TestImportsFollowTheTable(t *testing.T) {
	t.Parallel()
	for _, r := range imports {
		for _, name := range r.ours {
			i := slices.IndexFunc(imports, func(o row) bool { return o.pkg == name })
			if name != anything && (i < 0 || imports[i].level >= r.level) {
				t.Errorf("table: %s may import %s, which has no line or does not stand below it", r.pkg, name)
			}
		}
	}
	used := map[string]bool{}
	for _, f := range goFiles(t) {
		r, ok := rowOf(f.dir)
		if !ok {
			t.Errorf("%s: package %s has no line in the import table; add one with its level and the reason", f.name, f.dir)
			continue
		}
		for _, spec := range f.ast.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Errorf("%s: import %s: %v", f.name, spec.Path.Value, err)
				continue
			}
			used[r.pkg+" "+strings.TrimPrefix(imported, module+"/")] = true
			if reason := forbids(r, f, imported); reason != "" {
				t.Errorf("%s imports %s: %s\n\t%s: %s", f.name, imported, reason, r.pkg, r.why)
			}
		}
	}
	for _, r := range imports {
		for _, name := range r.ours {
			if name != anything && !used[r.pkg+" "+name] {
				t.Errorf("table: %s may import %s and does not: take it out", r.pkg, name)
			}
		}
	}
}

// forbids says why the file f of the package of r may not import a path, or "" when it may.
func forbids(r row, f goFile, imported string) string {
	local, ours := strings.CutPrefix(imported+"/", module+"/")
	local = strings.TrimSuffix(local, "/")
	switch {
	case ours && (local == f.dir || f.outer):
		return ""
	case ours && strings.HasSuffix(local, "test"):
		if !f.test && f.dir != "bench" { // which measures beside the servers that tests run, and does not ship
			return "a package for tests in code that ships"
		}
		return ""
	case ours:
		if below, ok := rowOf(local); slices.Contains(r.ours, local) || slices.Contains(r.ours, anything) && ok &&
			below.level < r.level {
			return ""
		}
		return "imports point down, and only where the table says so"
	case imported == "testing" || strings.HasPrefix(imported, "testing/") || imported == "net/http/httptest" ||
		slices.ContainsFunc(testOnly, within(imported)):
		if !f.test {
			return "a test library in code that ships"
		}
		return ""
	case !strings.Contains(strings.SplitN(imported, "/", 2)[0], "."):
		return "" // the standard library
	case slices.Contains(r.third, anything) || slices.ContainsFunc(r.third, within(imported)):
		return ""
	}
	return "a library has one home"
}

// within returns a test of whether imported is the given module or a package of it.
func within(imported string) func(string) bool {
	return func(mod string) bool { return imported == mod || strings.HasPrefix(imported, mod+"/") }
}

// rowOf finds the line of a folder; a folder named ...test has the rights of its parent.
func rowOf(dir string) (row, bool) {
	for _, r := range imports {
		parent, below := strings.CutSuffix(r.pkg, "/...")
		if r.pkg == dir || below && strings.HasPrefix(dir, parent+"/") {
			return r, true
		}
	}
	if parent := path.Dir(dir); strings.HasSuffix(dir, "test") && parent != "." {
		r, ok := rowOf(parent)
		r.ours = append([]string{parent}, r.ours...)
		return r, ok
	}
	return row{}, false
}

// The linter shows a wrong import in the editor, this table says what is wrong: one is generated from the other.
func TestLintRulesEqualTheTable(t *testing.T) {
	t.Parallel()
	const first, last = "        # begin import table\n", "        # end import table\n"
	var rules strings.Builder
	for _, r := range imports {
		if slices.Contains(r.third, anything) {
			continue
		}
		glob, name := r.pkg+"/*.go", strings.ReplaceAll(r.pkg, "/", "-")
		if r.pkg == "." {
			glob, name = "*.go", "main"
		}
		fmt.Fprintf(&rules, "        %s:\n          list-mode: strict\n", name)
		fmt.Fprintf(&rules, "          files: [\"${config-path}/%s\", \"!$test\"]\n          allow:\n            - $gostd\n",
			glob)
		for _, o := range r.ours {
			if o == anything {
				fmt.Fprintf(&rules, "            - %s/\n", module)
				continue
			}
			fmt.Fprintf(&rules, "            - %s/%s$\n", module, o)
		}
		libs := r.third
		if strings.HasSuffix(r.pkg, "test") {
			libs = append(slices.Clone(libs), testOnly...)
		}
		for _, lib := range libs {
			fmt.Fprintf(&rules, "            - %s\n", lib)
		}
	}
	text := read(t, ".golangci.yml")
	before, rest, ok := strings.Cut(text, first)
	old, after, ok2 := strings.Cut(rest, last)
	if !ok || !ok2 {
		t.Fatalf(".golangci.yml has lost the lines %q and %q", first, last)
	}
	if old == rules.String() {
		return
	}
	if !*update {
		t.Fatal("the depguard rules of .golangci.yml differ from the import table: run make generate")
	}
	if err := os.WriteFile(".golangci.yml", []byte(before+first+rules.String()+last+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestEachPackageHasOneComment(t *testing.T) {
	t.Parallel()
	comments := map[string][]string{}
	for _, f := range goFiles(t) {
		if strings.HasSuffix(f.name, "_test.go") {
			continue
		}
		comments[f.dir] = append(comments[f.dir], "")
		if f.ast.Doc != nil && strings.TrimSpace(f.ast.Doc.Text()) != "" {
			comments[f.dir] = append(comments[f.dir], f.name)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(comments)) {
		with := slices.DeleteFunc(comments[dir], func(name string) bool { return name == "" })
		if len(with) != 1 {
			t.Errorf("package %s has %d package comments %v, want one that a newcomer can work from", dir, len(with), with)
		}
	}
}

func TestFilesStayShort(t *testing.T) {
	t.Parallel()
	const most = 800
	for _, f := range goFiles(t) {
		if f.lines > most {
			t.Errorf("%s has %d lines, more than %d: split it by its nouns", f.name, f.lines, most)
		}
	}
}

// TestLinesAreNarrow: a line of Go has at most 120 columns. Only what cannot be broken may be longer: a text, a
// directive of a linter, a drawing in a comment; all of them together are less than 0.3 % of the lines.
func TestLinesAreNarrow(t *testing.T) {
	t.Parallel()
	const widest = 120
	lines, wide := 0, 0
	for _, name := range tracked(t) {
		if path.Ext(name) != ".go" {
			continue
		}
		number := 0
		for line := range strings.Lines(read(t, name)) {
			number++
			lines++
			if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) <= widest {
				continue
			}
			wide++
			text := strings.TrimLeft(line, "\t")
			prose := strings.HasPrefix(text, "// ") && !strings.HasPrefix(text, "//  ")
			if prose || !strings.ContainsAny(text, "\"`\t ─") {
				t.Errorf("%s:%d has more than %d columns", name, number, widest)
			}
		}
	}
	if wide*1000 >= lines*3 {
		t.Errorf("%d of %d lines have more than %d columns, want less than 0.3 %%", wide, lines, widest)
	}
}

// The words are put together from parts, so that this file does not hold them.
func TestNoFileSaysForbiddenWords(t *testing.T) {
	t.Parallel()
	forbidden := []struct {
		pattern *regexp.Regexp
		why     string
	}{
		{
			regexp.MustCompile(`(?m)\b(TO` + `DO|FIX` + `ME)\b`),
			"finish it, or write it into the list of known limits in the docs",
		},
		{regexp.MustCompile(`(?m)(^|[^\w.~])/wo` + `rk/`), "a path of the machine it was built on"},
		{
			regexp.MustCompile(`(?m)\b(pro` + `xy|s` + `um)\.gol` + `ang\.org\b`),
			"where modules come from is the user's setting",
		},
		{regexp.MustCompile(`(?m)\bregis` + `try\.(np` + `mjs|yar` + `npkg)\b|\bpy` + `pi\.org\b|\bpython` +
			`hosted\.org\b|\bdeb\.deb` + `ian\.org\b`), "where packages come from is the user's setting"},
		{regexp.MustCompile(`(?m)^(<{7} |>{7} )`), "a conflict that was not resolved"},
	}
	// Each pattern needs one of these.
	parts := []string{
		"TO" + "DO", "FIX" + "ME", "/wo" + "rk/", ".gol" + "ang.org", "regis" + "try.", "py" + "pi.org",
		"python" + "hosted", "deb.deb" + "ian", "<<<" + "<<<< ", ">>>" + ">>>> ",
	}
	for _, name := range tracked(t) {
		data := read(t, name)
		if strings.Contains(data, "\x00") {
			continue // not text
		}
		if !slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(data, part) }) {
			continue // the patterns take seconds, with the race detector
		}
		for _, f := range forbidden {
			if at := f.pattern.FindStringIndex(data); at != nil {
				t.Errorf("%s:%d says %q: %s", name, 1+strings.Count(data[:at[1]], "\n"), data[at[0]:at[1]], f.why)
			}
		}
	}
}

func TestMakefileHasWhatTheReadmePromises(t *testing.T) {
	t.Parallel()
	makefile := read(t, "Makefile")
	for target := range strings.FieldsSeq("help build test lint bench fuzz demo run cover cross generate check clean") {
		if !regexp.MustCompile(`(?m)^` + target + `:.*## `).MatchString(makefile) {
			t.Errorf("Makefile has no target %s with a ## comment", target)
		}
	}
	if _, err := os.Stat("main.go"); err != nil {
		return // no program to describe yet
	}
	readme := read(t, "README.md")
	for _, command := range []string{"make demo", "make test"} {
		if !strings.Contains(readme, command) {
			t.Errorf("README.md does not name %q", command)
		}
	}
}

// TestFilesAreSmall: what is built does not go into the tree.
func TestFilesAreSmall(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	for _, name := range tracked(t) {
		info, err := os.Stat(name)
		if err != nil {
			t.Error(err)
		} else if info.Size() > most {
			t.Errorf("%s has %d bytes, more than %d: programs and results of runs go into bin/", name, info.Size(), most)
		}
	}
}

// goFiles parses every .go file of the tree, for all systems.
func goFiles(t *testing.T) []goFile {
	t.Helper()
	var files []goFile
	for _, name := range tracked(t) {
		if path.Ext(name) != ".go" || strings.Contains(name, "testdata/") {
			continue
		}
		src := read(t, name)
		parsed, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		pkg := parsed.Name.Name
		files = append(files, goFile{
			name: name, dir: path.Dir(name), ast: parsed,
			test:  strings.HasSuffix(name, "_test.go") || strings.HasSuffix(path.Dir(name), "test"),
			outer: strings.HasSuffix(pkg, "_test"),
			lines: strings.Count(src, "\n"),
		})
	}
	return files
}

// tracked lists the files of the tree without what .gitignore leaves out.
func tracked(t *testing.T) []string {
	t.Helper()
	ignored := strings.Fields(read(t, ".gitignore"))
	var names []string
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		for _, pattern := range ignored {
			if "/"+name+"/" == pattern && d.IsDir() {
				return filepath.SkipDir
			}
			if ok, _ := path.Match(pattern, d.Name()); ok && !d.IsDir() {
				return nil
			}
		}
		if d.Name() == ".git" {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if d.Type().IsRegular() {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// read returns a file with Unix line ends.
func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")))
}
