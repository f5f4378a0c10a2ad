package yamlfile

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/catalog/phrase"
)

// kind is the kind of a node, as named in messages.
type kind string

// The kinds of a node.
const (
	Mapping kind = "a mapping"
	List    kind = "a list"
	Text    kind = "a text"
	Integer kind = "an integer"
	Number  kind = "a number"
	Boolean kind = "a boolean"
	Null    kind = "empty"
)

// Node is a YAML value with its position. Scalars keep their original text, so that a conversion to a number
// loses nothing.
type Node struct {
	Kind     kind
	Text     string
	Line     int
	Column   int
	Entries  []Entry
	Elements []*Node
}

// Entry is a key of a mapping with its value.
type Entry struct{ Key, Value *Node }

// Bounds of one document. A job needs four levels and some hundred tokens. The
// parser's time grows with the square of the keys in one mapping, and with more
// than the square of the empty lines in one block of text, so an unbounded
// document of 1 MiB would keep a daemon busy for minutes.
const (
	maxDepth      = 32
	maxIndent     = 200
	maxTokens     = 10_000
	maxEmptyLines = 100
)

// Parse parses one document. It checks the tokens first: it refuses features that job files do not use
// (anchors, aliases, tags, merge keys, directives), and nesting that would make the recursive parser run
// deep.
func Parse(file string, doc Document) (root *Node, problem *Problem) {
	defer func() {
		// The parser is foreign code fed with foreign text: whatever it does,
		// a daemon must go on with its last good definitions.
		if r := recover(); r != nil {
			root = nil
			problem = Position{file, doc.line + 1, 1}.Problem("write it more simply", "the YAML parser cannot read this document")
		}
	}()
	text := string(bytes.ReplaceAll(doc.Text, []byte("\r\n"), []byte("\n")))
	if line := longGap(text); line > 0 {
		return nil, Position{file, doc.line + line, 1}.Problem("remove some of them",
			"more than %d empty lines in a row", maxEmptyLines)
	}
	tokens := lexer.Tokenize(text)
	if tk, message, hint := refusedToken(tokens); tk != nil {
		return nil, problemAt(file, doc, tk, message, hint)
	}
	if len(tokens) > maxTokens {
		return nil, problemAt(file, doc, tokens[maxTokens], fmt.Sprintf("the document has more than %d words and signs",
			maxTokens), "split it, or let a list file hold the items")
	}
	parsed, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if y, ok := errors.AsType[yaml.Error](err); ok {
		return nil, problemAt(file, doc, y.GetToken(), "not valid YAML: "+phrase.OneLine(y.GetMessage()), "")
	}
	if err != nil {
		return nil, problemAt(file, doc, nil, "not valid YAML: "+phrase.OneLine(err.Error()), "")
	}
	for _, d := range parsed.Docs {
		if d.Body == nil {
			continue
		}
		if root != nil {
			return nil, problemAt(file, doc, d.Body.GetToken(), "a second document without a line ---",
				"put --- between two jobs")
		}
		c := converter{line: doc.line}
		if root = c.node(d.Body); c.failed != nil {
			return nil, problemAt(file, doc, c.failed, "not valid YAML", "write it more simply")
		}
	}
	if root == nil {
		return nil, problemAt(file, doc, nil, "the document has no job", "")
	}
	return root, nil
}

// longGap gives the line at which a run of empty lines becomes too long, or 0.
func longGap(text string) int {
	run, number := 0, 0
	for line := range strings.Lines(text) {
		number++
		if strings.TrimSpace(line) != "" {
			run = 0
		} else if run++; run > maxEmptyLines {
			return number
		}
	}
	return 0
}

func problemAt(file string, doc Document, tk *token.Token, message, hint string) *Problem {
	at := Position{file, doc.line + 1, 1}
	if tk != nil && tk.Position != nil {
		at.Line, at.Column = doc.line+max(1, tk.Position.Line), max(1, tk.Position.Column)
	}
	return at.Problem(hint, "%s", message)
}

// refusedToken finds the first token that a job file may not have.
func refusedToken(tokens token.Tokens) (tk *token.Token, message, hint string) {
	flow, dashes, dashLine := 0, 0, 0
	for _, tk := range tokens {
		switch tk.Type {
		case token.AnchorType, token.AliasType:
			return tk, "anchors and aliases are not used in job files",
				`write the value out, or put a text with "&" or "*" in quotes`
		case token.TagType:
			return tk, "tags are not used in job files", `put a text with "!" in quotes`
		case token.MergeKeyType:
			return tk, "merge keys are not used in job files", "write the values out"
		case token.DirectiveType:
			return tk, "directives are not used in job files", ""
		case token.MappingKeyType:
			return tk, `keys with "?" are not used in job files`, "write KEY: VALUE"
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.SequenceEntryType:
			if tk.Position.Line != dashLine {
				dashes, dashLine = 0, tk.Position.Line
			}
			dashes++
		default:
		}
		if flow > maxDepth || dashes > maxDepth || tk.Position != nil && tk.Position.IndentNum > maxIndent {
			return tk, fmt.Sprintf("values are nested deeper than %d levels", maxDepth), ""
		}
	}
	return nil, "", ""
}

// converter copies the parser's tree into nodes.
type converter struct {
	line   int
	failed *token.Token
}

func (c *converter) node(n ast.Node) *Node {
	tk := n.GetToken()
	out := &Node{Line: c.line + max(1, tk.Position.Line), Column: max(1, tk.Position.Column)}
	switch n := n.(type) {
	case *ast.MappingNode:
		out.Kind = Mapping
		for _, v := range n.Values {
			out.Entries = append(out.Entries, Entry{Key: c.node(v.Key), Value: c.node(v.Value)})
		}
		if !n.IsFlowStyle && len(out.Entries) > 0 {
			// A block mapping begins where its first key is, not at the colon.
			out.Line, out.Column = out.Entries[0].Key.Line, out.Entries[0].Key.Column
		}
	case *ast.MappingValueNode:
		out.Kind = Mapping
		out.Entries = []Entry{{Key: c.node(n.Key), Value: c.node(n.Value)}}
		out.Line, out.Column = out.Entries[0].Key.Line, out.Entries[0].Key.Column
	case *ast.SequenceNode:
		out.Kind = List
		for _, v := range n.Values {
			out.Elements = append(out.Elements, c.node(v))
		}
	case *ast.StringNode:
		out.Kind, out.Text = Text, n.Value
	case *ast.LiteralNode:
		out.Kind, out.Text = Text, n.Value.Value
	case *ast.IntegerNode:
		out.Kind, out.Text = Integer, tk.Value
	case *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		out.Kind, out.Text = Number, tk.Value
	case *ast.BoolNode:
		out.Kind, out.Text = Boolean, tk.Value
	case *ast.NullNode:
		out.Kind = Null
		if tk.Type == token.NullType {
			out.Text = tk.Value
		}
	default:
		c.failed = tk
	}
	return out
}

// JSON returns the value as JSON, for what takes any. Numbers and words stay as they are written, so that only what is
// JSON too is taken.
func (n *Node) JSON() string {
	var parts []string
	switch n.Kind {
	case Mapping:
		for _, e := range n.Entries {
			parts = append(parts, string(param.AppendString(nil, e.Key.Text))+":"+e.Value.JSON())
		}
		return "{" + strings.Join(parts, ",") + "}"
	case List:
		for _, e := range n.Elements {
			parts = append(parts, e.JSON())
		}
		return "[" + strings.Join(parts, ",") + "]"
	case Text:
		return string(param.AppendString(nil, n.Text))
	case Integer, Number:
		return n.Text
	case Boolean:
		return strings.ToLower(n.Text)
	case Null:
	}
	return "null"
}

// Describe describes the value for messages: the text "soon", 7, a list.
func (n *Node) Describe() string {
	switch n.Kind {
	case Text:
		return fmt.Sprintf("the text %q", phrase.Clip(n.Text))
	case Integer, Number, Boolean:
		return phrase.Clip(n.Text)
	case Mapping, List, Null:
	}
	return string(n.Kind)
}
