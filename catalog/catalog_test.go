package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jobdir/jobdir/catalog/yamlfile"
)

func yamlJob(group, name, program string) string {
	return fmt.Sprintf("group: %s\nname: %s\nrun: [%s]\n", group, name, program)
}

// shown gives what the catalog holds: "group/name=program" of each job.
func shown(c *Catalog) string {
	var out []string
	for _, d := range c.All() {
		out = append(out, d.Address()+"="+strings.Join(append(slices.Clone(d.Run), d.Handler), ""))
	}
	return strings.Join(out, " ")
}

func remove(tb testing.TB, path string) {
	tb.Helper()
	if err := os.RemoveAll(path); err != nil {
		tb.Fatal(err)
	}
}

// step reloads and compares jobs and problems.
func step(t *testing.T, c *Catalog, what, jobs string, problems ...string) {
	t.Helper()
	err := c.Reload()
	if got := shown(c); got != jobs {
		t.Errorf("%s: jobs %q, want %q", what, got, jobs)
	}
	ps := c.Problems()
	if len(ps) != len(problems) || (err == nil) != (len(problems) == 0) {
		t.Fatalf("%s: problems %v (%v), want %q", what, ps, err, problems)
	}
	for i, p := range ps {
		if !strings.Contains(p.Error(), problems[i]) {
			t.Errorf("%s: problem %q, want %q", what, p.Error(), problems[i])
		}
	}
}

func TestReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	c := New(Options{Dirs: []string{dir}})
	step(t, c, "empty", "")
	write(t, at("one.yaml"), yamlJob("a", "one", "v1"))
	write(t, at("sub/two.yml"), yamlJob("a", "two", "v1")+"---\n"+yamlJob("b", "three", "v1"))
	step(t, c, "first", "a/one=v1 a/two=v1 b/three=v1")
	if !slices.Equal(c.Groups(), []string{"a", "b"}) || !slices.Equal(c.Folders(), []string{dir, at("sub")}) {
		t.Errorf("groups %v, folders %v", c.Groups(), c.Folders())
	}
	kept := c.Get("a", "two")

	write(t, at("sub/two.yml"), yamlJob("a", "two", "v2")+"---\n"+yamlJob("b", "three", "v2")+"delivers: x\n")
	write(t, at("one.yaml"), yamlJob("a", "one", "v2"))
	step(t, c, "a bad file keeps its last good version", "a/one=v2 a/two=v1 b/three=v1",
		`sub/two.yml:8:1: unknown key "delivers"`)
	if c.Get("a", "two") != kept {
		t.Error("the kept definition is another one")
	}
	step(t, c, "again", "a/one=v2 a/two=v1 b/three=v1", `unknown key "delivers"`)

	write(t, at("sub/two.yml"), yamlJob("a", "two", "v3"))
	step(t, c, "repaired", "a/one=v2 a/two=v3")
	remove(t, at("one.yaml"))
	step(t, c, "removed", "a/two=v3")
	write(t, at("new.yaml"), "group: [\n")
	step(t, c, "a new bad file", "a/two=v3", "new.yaml:1:8: not valid YAML")
	remove(t, at("new.yaml"))

	write(t, at("sub/two.yml"), strings.Repeat("#", yamlfile.MaxFile+1))
	step(t, c, "too large", "a/two=v3", "sub/two.yml: the file is larger than 1MiB (split it")
	remove(t, at("sub"))
	step(t, c, "a folder inside removed", "")
	write(t, at("one.yaml"), yamlJob("a", "one", "v4"))
	step(t, c, "back", "a/one=v4")
	remove(t, dir)
	step(t, c, "a job folder that is gone keeps its jobs", "a/one=v4", "the folder cannot be read: no such file")
}

func TestSharedEndpointNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := New(Options{Dirs: []string{dir}})
	write(t, filepath.Join(dir, "m.yaml"), yamlJob("a-b", "c", "old"))
	step(t, c, "alone", "a-b/c=old")
	if c.Get("a", "b-c") != nil || c.Get("a-b", "c") == nil || c.ByEndpoint("a-b-c") == nil {
		t.Error("the address is not told from the endpoint name")
	}
	write(t, filepath.Join(dir, "k.yaml"), "\n"+yamlJob("a", "b-c", "new"))
	write(t, filepath.Join(dir, "other.yaml"), yamlJob("x", "y", "p")+"---\n"+yamlJob("x", "y", "q"))
	first := `k.yaml:2:1: the endpoint name "a-b-c" of a/b-c is also that of a-b/c in ` + dir + "/m.yaml:1:1"
	second := `m.yaml:1:1: the endpoint name "a-b-c" of a-b/c is also that of a/b-c in ` + dir + "/k.yaml:2:1"
	step(t, c, "claimed twice", "a-b/c=old", first, second, "other.yaml:1:1", "other.yaml:5:1")
	step(t, c, "still", "a-b/c=old", first, second, "other.yaml:1:1", "other.yaml:5:1")
	remove(t, filepath.Join(dir, "m.yaml"))
	remove(t, filepath.Join(dir, "other.yaml"))
	step(t, c, "settled", "a/b-c=new")
}

func TestHandlersAndExtra(t *testing.T) {
	t.Parallel()
	registered := []string{"sum", "demo/stream"}
	extra := []Source{
		{Name: "embedded/sum.yaml", YAML: []byte("group: g\nname: sum\nhandler: sum\n")},
		{Name: "embedded/x.yaml", YAML: []byte("group: g\nname: x\nhandler: strem\n")},
	}
	c := New(Options{Extra: extra, Handlers: func() []string { return registered }})
	step(t, c, "unknown handler", "g/sum=sum",
		`embedded/x.yaml:3:10: unknown handler "strem" (registered: demo/stream, sum)`)
	registered = append(registered, "strem")
	step(t, c, "registered", "g/sum=sum g/x=strem")
	registered = []string{"sumy"}
	step(t, c, "gone", "g/sum=sum g/x=strem", `unknown handler "sum" (did you mean "sumy"? registered: sumy)`,
		`unknown handler "strem"`)
	registered = nil
	step(t, c, "none", "g/sum=sum g/x=strem", "(no handlers are registered)", "(no handlers are registered)")
	step(t, New(Options{Extra: extra}), "not checked", "g/sum=sum g/x=strem")
}

func TestFilesThatAreNotDefinitions(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{".dot.yaml", ".git/a.yaml", "a.yaml.bak", "a.json", "yaml", "jobdir.yaml"} {
		write(t, at(name), yamlJob("no", "such", "x"))
	}
	write(t, filepath.Join(outside, "real.yaml"), yamlJob("linked", "file", "x"))
	for link, target := range map[string]string{
		"link.yaml": filepath.Join(outside, "real.yaml"), "folder": outside,
		"folder.yaml": outside,
	} {
		if err := os.Symlink(target, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		syscall.Mkfifo(at("fifo.yaml"), 0o640), os.Symlink("fifo.yaml", at("fifo2.yaml")),
		os.Mkdir(at("dir.yaml"), 0o750),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	// The storage of a daemon among its jobs keeps definitions of its own.
	write(t, at("storage/storage.json"), "{}")
	write(t, at("storage/jobs/a.yaml"), yamlJob("no", "such", "x"))
	write(t, at("storage/definitions/0123.yaml"), yamlJob("linked", "file", "old"))
	c := New(Options{Dirs: []string{dir, dir + "/", at("dir.yaml")}})
	wrong := []string{
		"dir.yaml: it is a folder, not a definition file (move it away, or give it a name", "fifo.yaml: it is a fifo, not",
		"fifo2.yaml: it is a fifo, not", "folder.yaml: it is a folder, not",
	}
	step(t, c, "all", "linked/file=x", wrong...)
	if folders := c.Folders(); slices.ContainsFunc(folders,
		func(path string) bool { return strings.HasPrefix(path, at("storage")) }) {
		t.Errorf("the storage is read: %q", folders)
	}
	if err := os.Symlink("nothing", at("lost.yaml")); err != nil {
		t.Fatal(err)
	}
	step(t, c, "link to nothing", "linked/file=x", append(wrong, "lost.yaml: the file cannot be read: no such file")...)
}

func TestReadersSeeWholeSets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "m.yaml")
	version := func(n int) string {
		return yamlJob("a", "one", fmt.Sprint("v", n)) + "---\n" + yamlJob("a", "two", fmt.Sprint("v", n))
	}
	write(t, path, version(0))
	var log bytes.Buffer
	c := New(Options{Dirs: []string{dir}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	step(t, c, "start", "a/one=v0 a/two=v0")
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if all := c.All(); len(all) != 2 || all[0].Run[0] != all[1].Run[0] {
					t.Errorf("a mixture: %s", shown(c))
					return
				}
				_, _, _ = c.Problems(), c.Groups(), c.Get("a", "one")
			}
		})
	}
	for n := range 100 {
		write(t, path+".new", version(n))
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		if err := c.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	readers.Wait()
	if !strings.Contains(log.String(), "jobs=2 added=0 changed=2 removed=0 problems=0") {
		t.Errorf("log: %.300s", log.String())
	}
}

func TestProblemsAreFound(t *testing.T) {
	t.Parallel()
	_, err := Parse("f.yaml", []byte("group: a\nname: b\nrunn: [x]\ndelivers: y\n"))
	p, ok := errors.AsType[*Problem](err)
	if !ok || p.Line != 3 || p.Column != 1 {
		t.Errorf("first problem %+v", p)
	}
	want := `f.yaml:3:1: unknown key "runn" (did you mean "run"?)
f.yaml:4:1: unknown key "delivers" (did you mean "deliver"?)`
	if err.Error() != want {
		t.Errorf("text %s", err)
	}
}

// Next jobs are resolved after all files are read, so that the order in which files change does not matter;
// the previous definitions stay in use until all problems are solved.
func TestReloadOfFollowers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	c := New(Options{Dirs: []string{dir}})
	first := func(version, next string) {
		write(t, at("first.yaml"), yamlJob("g", "first", version)+"then: "+next+"\n")
	}
	first("v1", "{job: g/second}")
	step(t, c, "nothing to follow it", "", `first.yaml:4:13: then: there is no job "g/second"`)
	write(t, at("second.yaml"), yamlJob("g", "second", "v1"))
	step(t, c, "the other file comes", "g/first=v1 g/second=v1")
	first("v2", "{job: g/second, params: {n: 1}}")
	step(t, c, "the first changes first", "g/first=v1 g/second=v1",
		`first.yaml:4:32: then: the job g/second has no parameter "n" (the job has no parameters)`)
	write(t, at("second.yaml"), yamlJob("g", "second", "v2")+"params: {n: {type: integer, required: true, maximum: 1}}\n")
	step(t, c, "then the second", "g/first=v2 g/second=v2")
	first("v3", "{job: g/second, params: {n: 2}}")
	step(t, c, "a value that it does not take", "g/first=v2 g/second=v2", `then: the parameter "n" of g/second: `)
	first("v3", `{job: g/second, params: {n: "${id}"}}`)
	step(t, c, "nobody knows what it will be", "g/first=v3 g/second=v2")
	remove(t, at("second.yaml"))
	step(t, c, "it is removed", "g/first=v3", `there is no job "g/second"`)
	write(t, at("second.yaml"), "group: g\nnam: second\n")
	c = New(Options{Dirs: []string{dir}})
	if err := c.Reload(); err == nil || c.Get("g", "first") == nil {
		t.Errorf("the other file is wrong: %v, and the first one is not in use for that", err)
	}
	c = New(Options{
		Dirs:  []string{at("nowhere")},
		Extra: []Source{{Name: "x.yaml", YAML: []byte(yamlJob("g", "x", "v") + "then: {job: h/y}\n")}},
		ExternalJobs: func(group, name string) *Definition {
			return &Definition{Group: group, Name: name}
		},
	})
	_ = c.Reload()
	if ps := c.Problems(); len(ps) != 1 {
		t.Errorf("what is elsewhere is not found: %v", ps)
	}
}
