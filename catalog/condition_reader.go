package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/types"

	"github.com/jobdir/jobdir/statefs/steps"
)

// What conditions are made of. Anything else that the library knows is refused, whatever a later version of it brings.
var (
	conditionFunctions = []string{"len", "lower", "upper", "trim", "int", "float"}
	conditionOperators = []string{
		"==", "!=", "<", ">", "<=", ">=", "and", "or", "&&", "||", "in", "contains", "startsWith", "endsWith", "matches", "+",
		"-", "*", "/", "%", "??",
	}
)

// conditionReader goes through an expression, the inner parts first. It puts one name in the place of each reference
// (steps.a.status is three names and two accesses for the library), so that whatever is left of their kind is none,
// and refuses what conditions are not made of.
type conditionReader struct {
	def         *Definition
	scope       stepScope
	condition   *condition
	wrong, hint string
}

// names returns the names that an expression may use, with their types. A value that may be missing has no
// type, because it can be nil.
func (r *conditionReader) names() types.Map {
	names := types.Map{"id": types.String}
	for i := range r.def.Params {
		p := &r.def.Params[i]
		names["params."+p.Name] = types.Any
		if p.Required || !p.Default.IsZero() {
			names["params."+p.Name] = conditionType(p.Type)
		}
	}
	for name, s := range r.scope.before {
		names[stepsPrefix+name+".status"] = types.String
		for _, output := range s.Outputs {
			names[stepsPrefix+name+".outputs."+output] = types.Any
		}
	}
	return names
}

func conditionType(t ParamType) types.Type {
	switch t {
	case StringType:
		return types.String
	case IntegerType:
		return types.Int64
	case NumberType:
		return types.Float64
	case BooleanType:
		return types.Bool
	case ArrayType:
		return types.Array(types.Any)
	case ObjectType:
	}
	return types.Any
}

func (r *conditionReader) refuse(hint, format string, args ...any) {
	if r.wrong == "" {
		r.wrong, r.hint = fmt.Sprintf(format, args...), hint
	}
}

// Visit implements ast.Visitor.
func (r *conditionReader) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.NilNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.StringNode, *ast.ConditionalNode,
		*ast.ArrayNode, *ast.UnaryNode, *ast.ChainNode:
	case *ast.IdentifierNode:
		switch {
		case n.Value == "$env":
			r.refuse(conditionNames, "unknown name %q", n.Value)
		case slices.Contains(conditionFunctions, n.Value):
			r.refuse("write "+n.Value+"(VALUE)", "the function %s alone is no value", n.Value)
		}
	case *ast.MemberNode:
		r.member(node, n)
	case *ast.BinaryNode:
		r.binary(n)
	case *ast.BuiltinNode:
		if !slices.Contains(conditionFunctions, n.Name) {
			r.refuse("the functions are "+strings.Join(conditionFunctions, ", "), "%s cannot be used", clip(n.Name))
		}
	case *ast.CallNode:
		r.refuse("the functions are "+strings.Join(conditionFunctions, ", "), "%s is no function", clip(n.Callee.String()))
	case *ast.PredicateNode, *ast.PointerNode:
		r.refuse("there are no loops in it", "a condition cannot go through a list")
	case *ast.VariableDeclaratorNode:
		r.refuse("write the value where it is used", "a condition cannot name a value %q", clip(n.Name))
	default:
		r.refuse("compare params, outputs and statuses with each other and with values",
			"%s cannot be used", clip(n.String()))
	}
}

// member replaces what is a reference as a whole by its name.
func (r *conditionReader) member(node *ast.Node, n *ast.MemberNode) {
	switch n.Property.(type) {
	case *ast.StringNode, *ast.IntegerNode:
	default:
		r.refuse("write the name itself", "%s cannot be used", clip(n.String()))
		return
	}
	path := memberPath(n)
	switch {
	case len(path) == 2 && path[0] == "params":
		r.param(path[1])
		r.replace(node, &r.condition.params, strings.Join(path, "."), path[1])
	case len(path) < 3 || path[0] != "steps":
	case len(path) == 3 && path[2] == "status":
		if wrong, hint := r.scope.step(path[1]); wrong != "" {
			r.refuse(hint, "%s", wrong)
		}
		r.replace(node, &r.condition.status, strings.Join(path, "."), path[1])
	case path[2] != "outputs":
		if wrong, hint := r.scope.step(path[1]); wrong != "" {
			r.refuse(hint, "%s", wrong)
		}
		r.refuse(cmp.Or(didYouMean(path[2], []string{"outputs", "status"}), "it has outputs and status"),
			"a step has no %q", clip(path[2]))
	case len(path) == 4:
		if wrong, hint := r.scope.output(path[1], path[3]); wrong != "" {
			r.refuse(hint, "%s", wrong)
		}
		ref := strings.Join(path, ".")
		r.replace(node, &r.condition.outputs, ref, ref)
	}
}

func (r *conditionReader) param(name string) {
	if r.def.Param(name) != nil {
		return
	}
	r.refuse(r.def.knownParam(name), "unknown parameter %q", clip(name))
}

func (r *conditionReader) replace(node *ast.Node, used *[]string, name, use string) {
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

func (r *conditionReader) binary(n *ast.BinaryNode) {
	_, constant := n.Right.(*ast.StringNode)
	switch {
	case !slices.Contains(conditionOperators, n.Operator):
		r.refuse("the operators are "+strings.Join(conditionOperators, " "), "the operator %s cannot be used", n.Operator)
	case n.Operator == "matches" && !constant:
		r.refuse("write the pattern itself, in quotes", "matches needs a pattern that does not change")
	case n.Operator == "==" || n.Operator == "!=" || n.Operator == "in":
		r.status(n.Left, n.Right)
		r.status(n.Right, n.Left)
	}
}

// status finds comparisons of a status with a word that is none, which never hold.
func (r *conditionReader) status(status, with ast.Node) {
	name, ok := status.(*ast.IdentifierNode)
	if !ok || !strings.HasPrefix(name.Value, stepsPrefix) || !strings.HasSuffix(name.Value, ".status") {
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
			r.refuse(allowed(word.Value, words), "a status cannot be %q", clip(word.Value))
		}
	}
}
