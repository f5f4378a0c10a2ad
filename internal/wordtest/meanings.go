// Package wordtest reads what comments say of constants, for the tests that generate pages of the documentation.
package wordtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
)

// Meanings returns what the comments of the constants in files of Go say, by the values of the constants: "// Pending:
// it has not begun." means "It has not begun." It panics if a file cannot be parsed.
func Meanings(files ...string) map[string]string {
	meanings := make(map[string]string)
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			panic(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || spec.Doc == nil || len(spec.Values) != 1 {
				return true
			}
			value, ok := spec.Values[0].(*ast.BasicLit)
			text, is := strings.CutPrefix(strings.Join(strings.Fields(spec.Doc.Text()), " "), spec.Names[0].Name+": ")
			if ok && is {
				meanings[strings.Trim(value.Value, `"`)] = strings.ToUpper(text[:1]) + text[1:]
			}
			return true
		})
	}
	return meanings
}
