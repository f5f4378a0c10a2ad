package main

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestDependenciesAreExplained(t *testing.T) {
	t.Parallel()
	docs := read(t, "docs/dependencies.md") + read(t, "docs/dependencies-of-tests.md")
	imported := map[string][]string{} // by the folder of the module
	for _, f := range goFiles(t) {
		for _, spec := range f.ast.Imports {
			imported[moduleOf(f.name)] = append(imported[moduleOf(f.name)], strings.Trim(spec.Path.Value, `"`))
		}
	}
	for _, dir := range modules(t) {
		required := requirements(t, dir)
		used := map[string]bool{}
		for _, name := range imported[dir] {
			owner := "" // modules may be nested
			for _, m := range required {
				if within(name)(m.path) && len(m.path) > len(owner) {
					owner = m.path
				}
			}
			used[owner] = true
		}
		for _, m := range required {
			if m.path == module {
				continue
			}
			if m.direct && !used[m.path] {
				t.Errorf("%s/go.mod requires %s, which no file of this module imports: run go mod tidy", dir, m.path)
			}
			if (m.direct || used[m.path]) && !strings.Contains(docs, "`"+m.path+"` "+m.version) {
				t.Errorf("docs/dependencies.md does not explain `%s` %s: what for, where it lives, what it leaves to us", m.path,
					m.version)
			}
		}
	}
}

// TestModulesAgreeOnVersions: bench measures the program with the libraries that the program ships with.
func TestModulesAgreeOnVersions(t *testing.T) {
	t.Parallel()
	chosen := map[string]string{} // the version of each module
	from := map[string]string{}   // the go.mod that names it
	for _, dir := range modules(t) {
		if slices.ContainsFunc(separate, func(m separateModule) bool { return m.dir == dir && !m.agrees }) {
			continue
		}
		for _, m := range requirements(t, dir) {
			switch version, known := chosen[m.path]; {
			case !known:
				chosen[m.path], from[m.path] = m.version, dir
			case version != m.version:
				t.Errorf("%s: %s/go.mod has %s, %s/go.mod has %s: use one version in both, by go get and go mod tidy",
					m.path, from[m.path], version, dir, m.version)
			}
		}
	}
}

// requirement is one line of a go.mod.
type requirement struct {
	path, version string
	direct        bool
}

// requirements reads the go.mod of a folder.
func requirements(t *testing.T, dir string) []requirement {
	t.Helper()
	line := regexp.MustCompile(`(?m)^(?:require)?\s+(\S+\.\S+/\S+) (v\S+)(.*)$`)
	lines := line.FindAllStringSubmatch(read(t, path.Join(dir, "go.mod")), -1)
	if len(lines) == 0 {
		t.Fatalf("%s/go.mod requires nothing that could be read", dir)
	}
	required := make([]requirement, 0, len(lines))
	for _, l := range lines {
		required = append(required, requirement{l[1], l[2], !strings.Contains(l[3], "// indirect")})
	}
	return required
}

// modules returns the folders of all modules, the program's first.
func modules(t *testing.T) []string {
	t.Helper()
	var dirs []string
	for _, name := range tracked(t) {
		if path.Base(name) == "go.mod" && !strings.Contains(name, "testdata/") {
			dirs = append(dirs, path.Dir(name))
		}
	}
	slices.Sort(dirs)
	want := []string{"."}
	for _, m := range separate {
		want = append(want, m.dir)
	}
	if !slices.Equal(dirs, want) {
		t.Errorf("the tree has the modules %v, the list in layout_test.go has %v", dirs, want)
	}
	return dirs
}

// TestEachModuleWithTestsIsChecked: `./...` of the program's module ends at the borders of the other modules.
func TestEachModuleWithTestsIsChecked(t *testing.T) {
	t.Parallel()
	makefile := read(t, "Makefile")
	example := regexp.MustCompile(`(?m)^EXAMPLE\s*:= ([^#\s]+)`).FindStringSubmatch(makefile)
	if example == nil {
		t.Fatal("Makefile does not set EXAMPLE")
	}
	makefile = strings.ReplaceAll(makefile, "$(EXAMPLE)", example[1])
	tested := map[string]bool{}
	for _, f := range goFiles(t) {
		if strings.HasSuffix(f.name, "_test.go") {
			tested[moduleOf(f.name)] = true
		}
	}
	delete(tested, ".")
	if !tested["bench"] || !tested[example[1]] {
		t.Errorf("modules with tests: %v, want bench and %s among them", tested, example[1])
	}
	for dir := range tested {
		for _, target := range []string{"test", "prove", "lint"} {
			_, recipe, _ := strings.Cut(makefile, "\n"+target+":")
			recipe, _, _ = strings.Cut(recipe, "\n\n")
			if !strings.Contains(recipe, "\n\tcd "+dir+" && ") {
				t.Errorf("make %s does nothing in %s, a module with tests", target, dir)
			}
		}
	}
}
