package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// privateWords are turns of phrase that make a reader look for the noun: a sentence that needs one of them does not
// name its actor or its object. "Those that are due" is "the operations whose delay has elapsed".
var privateWords = regexp.MustCompile(`(?i)\b(` + strings.Join([]string{
	`some` + `body`, `no` + `body`, `who` + `ever`, `those ` + `that`, `ones? ` + `that`, `of ` + `which`,
	`(has|have|had) [^.;:]{1,40} looked ` + `at`, `have [^.;:]{1,30} ` + `told`, `lets? ` + `go( of)?`,
	`in the ` + `way`, `in ` + `hand`, `by ` + `hand`, `a ` + `while`, `as it ` + `was`, `like` + `wise`,
	`meanwhile[.;]`, `(is|was|are|were|been) (said|told)`, `stands? ` + `for`,
}, "|") + `)`)

// privateWordsLeft are the exceptions, by folder, each with its reason. A number may only fall.
var privateWordsLeft = map[string]int{
	".":                1, // the example in the comment of privateWords
	"daemon/keeper":    1, // a value in the exit reports of keepers that run already
	"internal/torture": 3, // the name of the user with UID 65534
}

// TestProseIsPlain holds that comments and pages name their actors and objects.
func TestProseIsPlain(t *testing.T) {
	t.Parallel()
	found := map[string][]string{}
	for _, name := range tracked(t) {
		for _, text := range proseOf(t, name) {
			for _, hit := range privateWords.FindAllString(text, -1) {
				found[path.Dir(name)] = append(found[path.Dir(name)], name+": "+hit)
			}
		}
	}
	folders := slices.Collect(maps.Keys(found))
	folders = append(folders, slices.Collect(maps.Keys(privateWordsLeft))...)
	slices.Sort(folders)
	for _, folder := range slices.Compact(folders) {
		switch got, want := len(found[folder]), privateWordsLeft[folder]; {
		case got > want:
			t.Errorf("%s has %d turns of phrase that hide the noun (%d were there before); name the actor and the object:\n\t%s",
				folder, got, want, strings.Join(found[folder], "\n\t"))
		case got < want:
			t.Errorf("%s has %d private turns of phrase left: lower its number in privateWordsLeft, now %d",
				folder, got, want)
		}
	}
}

// messagesOf returns the texts of a file that are sentences: what the program says.
func messagesOf(file *ast.File) (texts []string) {
	ast.Inspect(file, func(node ast.Node) bool {
		if lit, ok := node.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil && strings.Count(text, " ") > 1 {
				texts = append(texts, text)
			}
		}
		return true
	})
	return texts
}

// proseOf returns the comments of a Go or JavaScript file, the messages of a program, and the text of a page outside of
// its code.
func proseOf(t *testing.T, name string) []string {
	t.Helper()
	switch path.Ext(name) {
	case ".go":
		file, err := parser.ParseFile(token.NewFileSet(), name, read(t, name),
			parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		var comments []string
		for _, group := range file.Comments {
			comments = append(comments, strings.Join(strings.Fields(group.Text()), " "))
		}
		if !strings.HasSuffix(name, "_test.go") {
			comments = append(comments, messagesOf(file)...)
		}
		return comments
	case ".js":
		var comments []string
		for line := range strings.Lines(read(t, name)) {
			if _, comment, ok := strings.Cut(line, "// "); ok {
				comments = append(comments, comment)
			}
		}
		return comments
	case ".md":
		var text strings.Builder
		for i, part := range strings.Split(read(t, name), "```") {
			if i%2 == 0 {
				text.WriteString(part)
			}
		}
		plain := regexp.MustCompile("`[^`]*`").ReplaceAllString(text.String(), "")
		return []string{strings.Join(strings.Fields(plain), " ")}
	}
	return nil
}
