package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// The packages are in layers (layout_test.go), and so are the files of a large package. Its package comment divides
// them into groups, in a table below the heading Layers, the highest group first:
//
//	name  what it is  a.go, b.go
//	                  c.go
//
// A file uses only what its own group and the groups below it declare.
const (
	groupFrom = 10 // files: a package with as many has the table
	mostGroup = 10 // files of a group
)

// group is a line of the table, with the lines that continue its files.
type group struct {
	name  string
	files []string
}

// groupsOf reads the table from a package comment; nil if the comment has none.
func groupsOf(comment string) (groups []group) {
	_, section, _ := strings.Cut(comment, "# Layers\n")
	section, _, _ = strings.Cut(section, "\n# ")
	columns := regexp.MustCompile(` {2,}`)
	for line := range strings.Lines(section) {
		cells := columns.Split(strings.TrimSpace(line), -1)
		files := strings.FieldsFunc(cells[len(cells)-1], func(r rune) bool { return r == ',' || r == ' ' })
		switch {
		case !strings.HasPrefix(line, "\t"):
		case len(cells) == 3:
			groups = append(groups, group{cells[0], files})
		case len(cells) == 1 && len(groups) > 0:
			last := &groups[len(groups)-1]
			last.files = append(last.files, files...)
		}
	}
	return groups
}

// TestFilesUseOnlyGroupsBelow holds the order of the groups. The compiler's export data describe what a package
// imports, so each package is type-checked alone; files for other systems are only looked up in the table.
func TestFilesUseOnlyGroupsBelow(t *testing.T) {
	t.Parallel()
	comments, names := map[string]string{}, map[string][]string{}
	for _, f := range goFiles(t) {
		if f.test || strings.HasPrefix(f.dir, "internal") || strings.HasPrefix(f.dir, "bench") || moduleOf(f.name) != "." {
			continue
		}
		comments[f.dir] += f.ast.Doc.Text()
		if path.Base(f.name) != "doc.go" && !ast.IsGenerated(f.ast) {
			names[f.dir] = append(names[f.dir], path.Base(f.name))
		}
	}
	tables, dirs := map[string][]group{}, []string{}
	for _, dir := range slices.Sorted(maps.Keys(comments)) {
		groups := groupsOf(comments[dir])
		switch {
		case groups != nil:
			tables[dir], dirs = groups, append(dirs, "./"+dir)
			checkTable(t, dir, groups, names[dir])
		case len(names[dir]) >= groupFrom:
			t.Errorf("%s has %d files: its package comment needs a table of groups below the heading Layers, as control/doc.go",
				dir, len(names[dir]))
		}
	}
	listed := goList(t, dirs...)
	fset := token.NewFileSet()
	imported := importer.ForCompiler(fset, "gc", func(name string) (io.ReadCloser, error) {
		return os.Open(listed[name].Export)
	})
	for _, dir := range slices.Sorted(maps.Keys(tables)) {
		var files []*ast.File
		for _, name := range listed[module+"/"+dir].GoFiles {
			file, err := parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		uses, err := usesUp(fset, files, tables[dir], imported)
		if err != nil {
			t.Errorf("%s: %v", dir, err)
		}
		for _, use := range uses {
			t.Error(use)
		}
	}
}

// checkTable holds that each file is in one group.
func checkTable(t *testing.T, dir string, groups []group, files []string) {
	t.Helper()
	in := map[string]string{}
	for _, g := range groups {
		if len(g.files) > mostGroup {
			t.Errorf("%s: group %q has %d files, want at most %d: divide it", dir, g.name, len(g.files), mostGroup)
		}
		for _, name := range g.files {
			if in[name] != "" {
				t.Errorf("%s: %s is in the groups %q and %q, want one", dir, name, in[name], g.name)
			}
			if !slices.Contains(files, name) {
				t.Errorf("%s: group %q has %s, which does not exist", dir, g.name, name)
			}
			in[name] = g.name
		}
	}
	for _, name := range files {
		if in[name] == "" {
			t.Errorf("%s: %s is in no group: add it to the table of the package comment", dir, name)
		}
	}
}

// usesUp type-checks a package and returns its uses of what a higher group declares, fields and methods included.
func usesUp(fset *token.FileSet, files []*ast.File, groups []group, imported types.Importer) (up []string, err error) {
	level := map[string]int{}
	for i, g := range groups {
		for _, name := range g.files {
			level[name] = len(groups) - i
		}
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: imported}
	pkg, err := conf.Check(files[0].Name.Name, fset, files, &info)
	for at, used := range info.Uses {
		if used.Pkg() != pkg {
			continue
		}
		user, owner := fset.Position(at.Pos()), fset.Position(used.Pos())
		own, its := level[filepath.Base(user.Filename)], level[filepath.Base(owner.Filename)]
		if own > 0 && its > own {
			up = append(up, fmt.Sprintf("%s:%d of group %q uses %s, which %s of the higher group %q declares: move the "+
				"declaration down or the caller up, or pass a function or an interface", user.Filename, user.Line,
				groups[len(groups)-own].name, used.Name(), filepath.Base(owner.Filename), groups[len(groups)-its].name))
		}
	}
	slices.Sort(up)
	return slices.Compact(up), err
}

// listedPackage is what go list prints of a package.
type listedPackage struct {
	ImportPath, Export string
	GoFiles            []string
}

// goList describes packages and all that they import, compiled as this test is: their export data are in the cache.
func goList(t *testing.T, dirs ...string) map[string]listedPackage {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Export,GoFiles"}
	if built, ok := debug.ReadBuildInfo(); ok &&
		slices.Contains(built.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}
	list := exec.CommandContext(t.Context(), "go", append(args, dirs...)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %v", list, err)
	}
	listed := map[string]listedPackage{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg listedPackage
		if err := decoder.Decode(&pkg); err == io.EOF {
			return listed
		} else if err != nil {
			t.Fatal(err)
		}
		listed[pkg.ImportPath] = pkg
	}
}

// TestUsesUpAreFound: each kind of use counts; a use of a lower group, of the same group or of a local name does not.
func TestUsesUpAreFound(t *testing.T) {
	t.Parallel()
	const low = `package p
type base struct{ count int }
func (b *base) read(a *above) int { return b.count + a.field }
func calls() int { limit := most; return limit }
func infers() { made().method() }
func fine(list []base) { for _, b := range list { b.read(nil) } }
`
	const high = `package p
type above struct{ field int }
func (a *above) method() { calls() }
func made() *above { return &above{} }
const most = 3
`
	fset := token.NewFileSet()
	var files []*ast.File
	for name, text := range map[string]string{"low.go": low, "high.go": high} {
		file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	const comment = "\n# Layers\n\n\ttop  what runs  high.go\n\tbase  data  low.go\n\n# More\n\n\ta  b  c.go\n"
	up, err := usesUp(fset, files, groupsOf(comment), importer.Default())
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, use := range up {
		found = append(found, regexp.MustCompile(`^(\S+) .* uses (\S+), which .*`).ReplaceAllString(use, "$1 $2"))
	}
	want := []string{"low.go:3 above", "low.go:3 field", "low.go:4 most", "low.go:5 made", "low.go:5 method"}
	if !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}
