package condition

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/types"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/catalog/phrase"
	"github.com/jobdir/jobdir/statefs/steps"
)

// What conditions are made of. Anything else that the library knows is refused, whatever a later version of it brings.
var (
	functions = []string{"len", "lower", "upper", "trim", "int", "float"}
	operators = []string{
		"==", "!=", "<", ">", "<=", ">=", "and", "or", "&&", "||", "in", "contains", "startsWith", "endsWith", "matches", "+",
		"-", "*", "/", "%", "??",
	}
)

// reader goes through an expression, the inner parts first. It puts one name in the place of each reference
// (steps.a.status is three names and two accesses for the library), so that whatever is left of their kind is none,
// and refuses what conditions are not made of.
type reader struct {
	scope       Scope
	condition   *Condition
	wrong, hint string
}

// names returns the names that an expression may use, with their types. A value that may be missing has no
// type, because it can be nil.
func (r *reader) names() types.Map {
	names := types.Map{"id": types.String}
	for i := range r.scope.Params {
		p := &r.scope.Params[i]
		names["params."+p.Name] = types.Any
		if p.Required || !p.Default.IsZero() {
			names["params."+p.Name] = typeOf(p.Type)
		}
	}
	for name, s := range r.scope.Before {
		names[StepsPrefix+name+".status"] = types.String
		for _, output := range s.Outputs {
			names[StepsPrefix+name+".outputs."+output] = types.Any
		}
	}
	return names
}

func typeOf(t param.Type) types.Type {
	switch t {
	case param.StringType:
		return types.String
	case param.IntegerType:
		return types.Int64
	case param.NumberType:
		return types.Float64
	case param.BooleanType:
		return types.Bool
	case param.ArrayType:
		return types.Array(types.Any)
	case param.ObjectType:
	}
	return types.Any
}

func (r *reader) refuse(hint, format string, args ...any) {
	if r.wrong == "" {
		r.wrong, r.hint = fmt.Sprintf(format, args...), hint
	}
}

// Visit implements ast.Visitor.
func (r *reader) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.NilNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.StringNode, *ast.ConditionalNode,
		*ast.ArrayNode, *ast.UnaryNode, *ast.ChainNode:
	case *ast.IdentifierNode:
		switch {
		case n.Value == "$env":
			r.refuse(knownNames, "unknown name %q", n.Value)
		case slices.Contains(functions, n.Value):
			r.refuse("write "+n.Value+"(VALUE)", "the function %s alone is no value", n.Value)
		}
	case *ast.MemberNode:
		r.member(node, n)
	case *ast.BinaryNode:
		r.binary(n)
	case *ast.BuiltinNode:
		if !slices.Contains(functions, n.Name) {
			r.refuse("the functions are "+strings.Join(functions, ", "), "%s cannot be used", phrase.Clip(n.Name))
		}
	case *ast.CallNode:
		r.refuse("the functions are "+strings.Join(functions, ", "), "%s is no function", phrase.Clip(n.Callee.String()))
	case *ast.PredicateNode, *ast.PointerNode:
		r.refuse("there are no loops in it", "a condition cannot go through a list")
	case *ast.VariableDeclaratorNode:
		r.refuse("write the value where it is used", "a condition cannot name a value %q", phrase.Clip(n.Name))
	default:
		r.refuse("compare params, outputs and statuses with each other and with values",
			"%s cannot be used", phrase.Clip(n.String()))
	}
}

// member replaces what is a reference as a whole by its name.
func (r *reader) member(node *ast.Node, n *ast.MemberNode) {
	switch n.Property.(type) {
	case *ast.StringNode, *ast.IntegerNode:
	default:
		r.refuse("write the name itself", "%s cannot be used", phrase.Clip(n.String()))
		return
	}
	path := memberPath(n)
	switch {
	case len(path) == 2 && path[0] == "params":
		r.check(r.scope.Param(path[1]))
		r.replace(node, &r.condition.Uses.Params, strings.Join(path, "."), path[1])
	case len(path) < 3 || path[0] != "steps":
	case len(path) == 3 && path[2] == "status":
		r.check(r.scope.Step(path[1]))
		r.replace(node, &r.condition.Uses.Statuses, strings.Join(path, "."), path[1])
	case path[2] != "outputs":
		r.check(r.scope.Step(path[1]))
		r.refuse(cmp.Or(phrase.DidYouMean(path[2], []string{"outputs", "status"}), "it has outputs and status"),
			"a step has no %q", phrase.Clip(path[2]))
	case len(path) == 4:
		r.check(r.scope.Output(path[1], path[3]))
		ref := strings.Join(path, ".")
		r.replace(node, &r.condition.Uses.Outputs, ref, ref)
	}
}

// check refuses what is wrong, "" if nothing is.
func (r *reader) check(wrong, hint string) {
	if wrong != "" {
		r.refuse(hint, "%s", wrong)
	}
}

func (r *reader) replace(node *ast.Node, used *[]string, name, use string) {
	if r.wrong != "" {
		return
	}
	if !slices.Contains(*used, use) {
		*used = append(*used, use)
	}
	ast.Patch(node, &ast.IdentifierNode{Value: name})
}

// memberPath gives the names of a chain of accesses, nil when it is not made of names alone.
func memberPath(node ast.Node) []string {
	switch n := node.(type) {
	case *ast.IdentifierNode:
		return []string{n.Value}
	case *ast.MemberNode:
		name, ok := n.Property.(*ast.StringNode)
		if before := memberPath(n.Node); ok && before != nil {
			return append(before, name.Value)
		}
	}
	return nil
}

func (r *reader) binary(n *ast.BinaryNode) {
	_, constant := n.Right.(*ast.StringNode)
	switch {
	case !slices.Contains(operators, n.Operator):
		r.refuse("the operators are "+strings.Join(operators, " "), "the operator %s cannot be used", n.Operator)
	case n.Operator == "matches" && !constant:
		r.refuse("write the pattern itself, in quotes", "matches needs a pattern that does not change")
	case n.Operator == "==" || n.Operator == "!=" || n.Operator == "in":
		r.status(n.Left, n.Right)
		r.status(n.Right, n.Left)
	}
}

// status finds comparisons of a status with a word that is none, which never hold.
func (r *reader) status(status, with ast.Node) {
	name, ok := status.(*ast.IdentifierNode)
	if !ok || !strings.HasPrefix(name.Value, StepsPrefix) || !strings.HasSuffix(name.Value, ".status") {
		return
	}
	var words []string
	for _, s := range steps.Statuses() {
		words = append(words, string(s))
	}
	nodes := []ast.Node{with}
	if list, ok := with.(*ast.ArrayNode); ok {
		nodes = list.Nodes
	}
	for _, n := range nodes {
		if word, ok := n.(*ast.StringNode); ok && !slices.Contains(words, word.Value) {
			r.refuse(phrase.Allowed(word.Value, words), "a status cannot be %q", phrase.Clip(word.Value))
		}
	}
}

// unexpectedToken matches the library's message for an unexpected token.
var unexpectedToken = regexp.MustCompile(`^unexpected token [A-Za-z]+\((".*")\)$`)

// slips are the hints for what people write who know other languages.
var slips = map[string]string{
	`unexpected "="`:   "equal is ==",
	`unexpected "AND"`: "write and",
	`unexpected "OR"`:  "write or",
	`unexpected "is"`:  "equal is ==",
}

// mistake translates an error of the library into the terms of job files.
func (r *reader) mistake(text, message string) (said, hint string) {
	message = phrase.OneLine(message)
	name, unknown := strings.CutPrefix(message, "unknown name ")
	switch {
	case message == "unexpected token EOF":
		return "it is cut off", ""
	case !unknown:
		message = unexpectedToken.ReplaceAllString(message, "unexpected $1")
		return message, slips[message]
	case r.scope.hasParam(name):
		return fmt.Sprintf("unknown name %q", name), "write params." + name
	case slices.Contains(r.scope.Names, name):
		return fmt.Sprintf("unknown name %q", name), fmt.Sprintf("write steps.%s.status or steps.%s.outputs.NAME", name, name)
	case name != "params" && name != "steps":
		return fmt.Sprintf("unknown name %q", name),
			cmp.Or(phrase.DidYouMean(name, []string{"params", "steps", "id"}), knownNames)
	}
	for _, step := range r.scope.Names {
		if strings.Contains(step, "-") && strings.Contains(text, StepsPrefix+step) {
			return fmt.Sprintf("%s.%s is a subtraction", name, phrase.Clip(step)), fmt.Sprintf("write steps[%q]", step)
		}
	}
	return name + " alone is no value", knownNames
}
