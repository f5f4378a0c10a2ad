package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
)

// A reader holds this much at once. The limits are for code that ships. What grows beyond one is two things: give the
// second a type, a file or a package of its own.
const (
	mostMethods    = 40 // of a type
	mostFields     = 20 // of a struct
	mostFiles      = 30 // of a package
	mostAsked      = 5  // methods of an interface
	mostComplexity = 20 // of a function: the number of its branches and one
)

// wireFormats are structs whose fields are those of a file or a message: their number is that of the format.
var wireFormats = map[string]string{
	"catalog.Definition": "a job file",
	"client.Operation":   "an operation on the wire",
	"statefs/api.Ended":  "an entry of the completion feed",
	"statefs/api.Event":  "an event on the wire",
	"daemon/history.Row": "a row of the index",
	"statefs.Record":     "the record file",
	"statefs.Submission": "a submit on the wire and in new/",
	"statefs/steps.Step": "a step in the record file",
}

// TestCodeStaysReadable holds the limits.
func TestCodeStaysReadable(t *testing.T) {
	t.Parallel()
	size := map[string]int{}
	most := map[string]int{}
	count := func(limit int, format string, args ...any) {
		name := fmt.Sprintf(format, args...)
		size[name]++
		most[name] = limit
	}
	for _, f := range goFiles(t) {
		if f.test || strings.HasPrefix(f.dir, "internal") || strings.HasPrefix(f.dir, "bench") ||
			strings.HasPrefix(f.dir, "examples") {
			continue
		}
		count(mostFiles, "files of package %s", f.dir)
		for _, decl := range f.ast.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if receiver := receiverOf(d); receiver != "" {
					count(mostMethods, "methods of %s.%s", f.dir, receiver)
					count(mostMethods, "methods of all types with the name %s", receiver)
					name = receiver + "." + name
				}
				name = fmt.Sprintf("complexity of %s.%s", f.dir, name)
				size[name], most[name] = max(size[name], complexity(d)), mostComplexity
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					typed, ok := spec.(*ast.TypeSpec)
					if !ok {
						continue
					}
					name := f.dir + "." + typed.Name.Name
					switch of := typed.Type.(type) {
					case *ast.StructType:
						if wireFormats[name] == "" {
							name = "fields of " + name
							size[name], most[name] = of.Fields.NumFields(), mostFields
						}
					case *ast.InterfaceType:
						name = "methods of interface " + name
						size[name], most[name] = of.Methods.NumFields(), mostAsked
					}
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(size)) {
		if size[name] > most[name] {
			t.Errorf("%s: %d, want at most %d: divide it", name, size[name], most[name])
		}
	}
}

func receiverOf(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	of := d.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	switch generic := of.(type) {
	case *ast.IndexExpr:
		of = generic.X
	case *ast.IndexListExpr:
		of = generic.X
	}
	name, _ := of.(*ast.Ident)
	return name.Name
}

// complexity counts the ways through a function as McCabe does, its function literals with it.
func complexity(d *ast.FuncDecl) int {
	ways := 1
	ast.Inspect(d, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			ways++
		case *ast.CaseClause:
			if n.List != nil {
				ways++
			}
		case *ast.CommClause:
			if n.Comm != nil {
				ways++
			}
		case *ast.BinaryExpr:
			if n.Op == token.LAND || n.Op == token.LOR {
				ways++
			}
		}
		return true
	})
	return ways
}

// TestCommitIsTheOnlyWriter: no other file of the daemon and its rooms writes the marker, the record or the end of an
// operation, or drops its requests, so that the order of writes is in one place. The index alone amends records too: it
// pins and numbers ended operations. ADR 34 lists the writes that are no commits, such as a submit.
func TestCommitIsTheOnlyWriter(t *testing.T) {
	t.Parallel()
	writers := strings.Fields("WriteRecord WriteEnd AmendRecord Move RemoveMarker RestoreMarker RestoreName RemoveName " +
		"Touch Sync Requests.Drop")
	calls := map[string]int{}
	for _, f := range goFiles(t) {
		if f.test || f.dir == "daemon/history" || f.dir != "daemon" && !strings.HasPrefix(f.dir, "daemon/") {
			continue
		}
		ast.Inspect(f.ast, func(node ast.Node) bool {
			if kept, ok := node.(*ast.AssignStmt); ok {
				of, selected := kept.Rhs[0].(*ast.SelectorExpr)
				if _, local := kept.Lhs[0].(*ast.Ident); local && selected && strings.EqualFold(of.Sel.Name, "owner") {
					t.Errorf("%s keeps the owner in a variable, which hides what is called of it", f.name)
				}
			}
			called, ok := node.(*ast.SelectorExpr)
			if name := methodOfOwner(called); ok && slices.Contains(writers, name) {
				calls[name]++
				if f.name != "daemon/commit.go" {
					t.Errorf("%s calls %s of the owner; commit.go is the place for it", f.name, name)
				}
			}
			return true
		})
	}
	for _, name := range writers {
		if calls[name] != 1 {
			t.Errorf("%s of the owner is called %d times in package daemon, want once", name, calls[name])
		}
	}
}

// TestQueueFollowsTheTableAlone: an operation enters the queue, moves in it or leaves it where the changes of the table
// are followed. Only what the table does not have is moved elsewhere: optional steps, and an operation that takes its
// places with its submit.
func TestQueueFollowsTheTableAlone(t *testing.T) {
	t.Parallel()
	movers := strings.Fields("Enqueue KeepTurn Hold Remove TryStart")
	may := strings.Fields("moveLocked unblockLocked tryAdmitStep holdStep releaseStep tryStartSubmit dropSubmitted")
	calls := map[string]bool{}
	for _, f := range goFiles(t) {
		if f.test || f.dir != "daemon" {
			continue
		}
		for _, decl := range f.ast.Decls {
			in, _ := decl.(*ast.FuncDecl)
			ast.Inspect(decl, func(node ast.Node) bool {
				called, ok := node.(*ast.SelectorExpr)
				if !ok || !slices.Contains(movers, called.Sel.Name) {
					return true
				}
				of, selected := called.X.(*ast.SelectorExpr)
				short, local := called.X.(*ast.Ident)
				if selected && of.Sel.Name == "queue" || local && short.Name == "q" {
					calls[called.Sel.Name] = true
					if in == nil || !slices.Contains(may, in.Name.Name) {
						t.Errorf("%s: %s of the queue is called outside of %v", f.name, called.Sel.Name, may)
					}
				}
				return true
			})
		}
	}
	for _, name := range movers {
		if !calls[name] {
			t.Errorf("%s of the queue is not called: the test does not see the calls", name)
		}
	}
}

// TestPartsOfTheDaemonAreInOneOrder: the fields of Daemon name its parts from the lowest, and a part has only parts
// before it as fields, so it can call no other.
func TestPartsOfTheDaemonAreInOneOrder(t *testing.T) {
	t.Parallel()
	fields := map[string][]string{} // the pointers to other structs, by struct of package daemon
	for _, f := range goFiles(t) {
		if f.test || f.dir != "daemon" {
			continue
		}
		ast.Inspect(f.ast, func(node ast.Node) bool {
			named, ok := node.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if of, ok := named.Type.(*ast.StructType); ok {
				for _, field := range of.Fields.List {
					if pointer, ok := field.Type.(*ast.StarExpr); ok {
						if part, ok := pointer.X.(*ast.Ident); ok {
							fields[named.Name.Name] = append(fields[named.Name.Name], part.Name)
						}
					}
				}
			}
			return true
		})
	}
	order := fields["Daemon"]
	if len(order) < 2 || order[0] != "core" {
		t.Fatalf("the parts of Daemon are %v, want core first", order)
	}
	for i, part := range order {
		for _, used := range fields[part] {
			if slices.Index(order, used) >= i {
				t.Errorf("part %s has part %s, which is not before it in Daemon", part, used)
			}
		}
	}
}

// TestDecisionsArePure: a decision is a function of its arguments. It has no file, clock, lock, goroutine or
// process-wide variable, so a table test covers it.
func TestDecisionsArePure(t *testing.T) {
	t.Parallel()
	pure := []string{"cmp", "fmt", "maps", "slices", "strings", "time"}
	decisions := []string{"Decide", "End", "EndTrailing", "ResumeCause", "StandingOf"} // the others give facts and records
	for _, f := range goFiles(t) {
		if f.test || f.dir != "daemon/decide" && f.name != "daemon/delivery/decide.go" {
			continue
		}
		for _, spec := range f.ast.Imports {
			imported := strings.Trim(spec.Path.Value, `"`)
			if !strings.HasPrefix(imported, module) && !slices.Contains(pure, imported) {
				t.Errorf("%s imports %s: the daemon reads facts and carries out answers", f.name, imported)
			}
		}
		for _, decl := range f.ast.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok && f.dir == "daemon/decide" && d.Recv == nil && d.Name.IsExported() &&
				!slices.Contains(decisions, d.Name.Name) {
				t.Errorf("%s exports %s: make it a row behind Decide", f.name, d.Name.Name)
			}
		}
		ast.Inspect(f.ast, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.GoStmt:
				t.Errorf("%s starts a goroutine", f.name)
			case *ast.SelectorExpr:
				clock := []string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Sleep", "Tick"}
				if of, ok := n.X.(*ast.Ident); ok && of.Name == "time" && slices.Contains(clock, n.Sel.Name) {
					t.Errorf("%s reads the clock with time.%s: take the time as an argument", f.name, n.Sel.Name)
				}
			}
			return true
		})
	}
}

// TestOnlyDecideJudges: what the state of an operation means for it is in package decide. The reconcile and the
// decisions name no state and no cause, and carry_out.go carries out every effect. The tables that lead from a state
// to another one are read in few places.
func TestOnlyDecideJudges(t *testing.T) {
	t.Parallel()
	tables := map[string][]string{
		"ManualMove":     nil,
		"Next":           {"daemon/requests.go"},
		"TransitionFrom": {"daemon/commit.go", "daemon/finish.go", "daemon/step_actions.go"}, // the order of its writes
		// At a start: before the record is restored there is no snapshot.
		"Interpret":       {"daemon/adopt.go"},
		"InterpretMarker": {"daemon/adopt.go", "daemon/recover.go"},
	}
	judged := []string{"daemon/reconcile.go", "daemon/decisions.go", "daemon/carry_out.go"}
	effects := map[string]bool{}
	carried := map[string]bool{"None": true, "Wait": true, "Merge": true, "PlanRetry": true}
	states := strings.Fields("Scheduled Queued Running Paused WaitingApproval FailedRetryable FailedManual Trailing")
	for _, f := range goFiles(t) {
		if f.test || f.dir != "daemon" && f.name != "daemon/decide/decide.go" {
			continue
		}
		ast.Inspect(f.ast, func(node ast.Node) bool {
			if spec, ok := node.(*ast.ValueSpec); ok {
				if of, ok := spec.Type.(*ast.Ident); ok && of.Name == "Effect" {
					effects[spec.Names[0].Name] = true
				}
			}
			if pair, ok := node.(*ast.KeyValueExpr); ok && f.name == "daemon/carry_out.go" {
				if key, ok := pair.Key.(*ast.SelectorExpr); ok {
					carried[key.Sel.Name] = true
				}
			}
			n, ok := node.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if of, ok := n.X.(*ast.Ident); !ok || of.Name != "statefs" {
				return true
			}
			if files, table := tables[n.Sel.Name]; table && !slices.Contains(files, f.name) {
				t.Errorf("%s calls statefs.%s: have package decide judge", f.name, n.Sel.Name)
			}
			named := slices.Contains(states, n.Sel.Name) || strings.HasPrefix(n.Sel.Name, "Cause") && n.Sel.Name != "Cause"
			if named && slices.Contains(judged, f.name) {
				t.Errorf("%s names statefs.%s: have package decide judge", f.name, n.Sel.Name)
			}
			return true
		})
	}
	for effect := range effects {
		if !carried[effect] {
			t.Errorf("daemon/carry_out.go does not carry out effect %s of package decide", effect)
		}
	}
	if len(effects) < 50 {
		t.Errorf("package decide has %d effects, want all of them", len(effects))
	}
}

// methodOfOwner returns what is called of an owner, such as WriteRecord or Requests.Drop; "" for any other call.
func methodOfOwner(called *ast.SelectorExpr) string {
	if called == nil {
		return ""
	}
	of, ok := called.X.(*ast.SelectorExpr)
	switch {
	case !ok:
		return ""
	case strings.EqualFold(of.Sel.Name, "owner"):
		return called.Sel.Name
	}
	if part := methodOfOwner(of); part != "" {
		return part + "." + called.Sel.Name
	}
	return ""
}
