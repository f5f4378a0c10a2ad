package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/spf13/pflag"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/cli/exit"
)

// Loaded is a configuration with the origin of each value.
type Loaded struct {
	Config
	// File is the path of the configuration file, "" for none.
	File string
	// origin maps each key that is set to the source of its value, for people.
	origin map[string]string
}

// Explicit reports whether the user has set a key.
func (l *Loaded) Explicit(key string) bool { return l.origin[key] != "" }

func (l *Loaded) originOf(key string) string { return cmp.Or(l.origin[key], "default") }

// Load reads the configuration for a command with these flags.
func Load(flags *pflag.FlagSet) (*Loaded, error) {
	env := map[string]string{}
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		env[name] = value
	}
	return load(flags, env)
}

// load reads the configuration from the flags, the variables of the environment and the file. Errors describe a mistake
// of the user and name its place.
func load(flags *pflag.FlagSet, env map[string]string) (*Loaded, error) {
	l := &Loaded{Config: defaults(env), origin: map[string]string{}}
	if err := l.readFile(flags, env); err != nil {
		return nil, err
	}
	for _, setting := range settings {
		if err := l.readEnvironment(env, setting); err != nil {
			return nil, err
		}
		if err := l.readFlag(flags, setting); err != nil {
			return nil, err
		}
	}
	if err := l.readLaneVariables(env); err != nil {
		return nil, err
	}
	return l, l.complete()
}

func (l *Loaded) readEnvironment(env map[string]string, set *setting) error {
	text := env[set.variable()]
	if text == "" {
		return nil
	}
	values := []string{text}
	if set.list {
		values = strings.Split(text, ",")
		for i := range values {
			values[i] = strings.TrimSpace(values[i])
		}
	}
	if err := set.set(&l.Config, values); err != nil {
		return exit.Usagef("environment variable %s: %w", set.variable(), err)
	}
	l.origin[set.key] = "environment " + set.variable()
	return nil
}

func (l *Loaded) readFlag(flags *pflag.FlagSet, set *setting) error {
	flag := flags.Lookup(set.flag())
	if flag == nil || !flag.Changed {
		return nil
	}
	values := []string{flag.Value.String()}
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		values = list.GetSlice()
	}
	if err := set.set(&l.Config, values); err != nil {
		return exit.Usagef("flag --%s: %w", set.flag(), err)
	}
	l.origin[set.key] = "flag --" + set.flag()
	return nil
}

func (l *Loaded) readFile(flags *pflag.FlagSet, env map[string]string) error {
	name, named := catalog.ConfigurationFile, false
	if text := env["JOBDIR_CONFIG"]; text != "" {
		name, named = text, true
	}
	if flag := flags.Lookup("config"); flag != nil && flag.Changed {
		name, named = flag.Value.String(), true
	}
	data, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !named:
		return nil
	case err != nil:
		return exit.Usagef("configuration: %w", err)
	}
	l.File = name
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return exit.Usagef("%s", l.syntax(err))
	}
	if len(file.Docs) > 1 {
		return exit.Usagef("configuration %s: there is more than one document in it", name)
	}
	for _, doc := range file.Docs {
		if err := l.readDocument(doc.Body); err != nil {
			return err
		}
	}
	return nil
}

func (l *Loaded) readDocument(body ast.Node) error {
	switch body.(type) {
	case nil, *ast.CommentGroupNode, *ast.NullNode:
		return nil
	}
	entries, ok := members(body)
	if !ok {
		return exit.Usagef("%s: expected keys and values, as in \"storage: ./storage\"", l.at(body))
	}
	for _, entry := range entries {
		var err error
		switch name := entry.Key.GetToken().Value; {
		case name == lanesKey:
			err = l.readLanes(entry.Value)
		case name == limitsKey:
			err = l.readLimits(entry.Value)
		case mappings[name] != "":
			err = l.eachMember(entry.Value, name, mappings[name], func(member string, at *ast.MappingValueNode) error {
				return l.readEntry(member, at, name)
			})
		default:
			err = l.readEntry(name, entry, "")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mappings are the keys of the file whose members are settings, with an example: retention: {age: 30d} is
// retention_age.
var mappings = map[string]string{"retention": "age: 30d", "events": "age: 30d", "crash_limit": "burst: 5"}

// members returns the members of a mapping.
func members(node ast.Node) ([]*ast.MappingValueNode, bool) {
	switch node := node.(type) {
	case *ast.MappingNode:
		return node.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{node}, true
	}
	return nil, false
}

// readEntry reads a setting, which has the name inside the mapping within; "" for the file itself.
func (l *Loaded) readEntry(name string, at *ast.MappingValueNode, within string) error {
	key := name
	if within != "" {
		key = within + "_" + name
	}
	set := settingFor(key)
	if set == nil || set.within != within {
		return l.unknownKey(at, name, keys(within))
	}
	values, err := l.values(at.Value)
	if err != nil {
		return err
	}
	if set.path {
		l.resolve(values)
	}
	if err := set.set(&l.Config, values); err != nil {
		return exit.Usagef("%s: %s: %w", l.at(at.Value), name, err)
	}
	l.note(key, at)
	return nil
}

// syntax describes a syntax error of the file, with its place.
func (l *Loaded) syntax(err error) string {
	placed, ok := errors.AsType[yaml.Error](err)
	if !ok || placed.GetToken() == nil {
		return fmt.Sprintf("%s: %v", l.File, err)
	}
	position := placed.GetToken().Position
	return fmt.Sprintf("%s:%d:%d: %s", l.File, position.Line, position.Column, placed.GetMessage())
}

// values returns the text of a scalar or of a list of scalars.
func (l *Loaded) values(node ast.Node) ([]string, error) {
	list, ok := node.(*ast.SequenceNode)
	if !ok {
		list = &ast.SequenceNode{Values: []ast.Node{node}}
	}
	values := []string{}
	for _, item := range list.Values {
		scalar, ok := item.(ast.ScalarNode)
		if _, null := item.(*ast.NullNode); null || !ok {
			return nil, exit.Usagef("%s: expected a text or a list of texts", l.at(item))
		}
		values = append(values, scalar.GetToken().Value)
	}
	return values, nil
}

// resolve makes paths of the file relative to its folder.
func (l *Loaded) resolve(values []string) {
	for i, path := range values {
		if path != "" && !filepath.IsAbs(path) {
			values[i] = filepath.Join(filepath.Dir(l.File), path)
		}
	}
}

func (l *Loaded) at(node ast.Node) string {
	position := node.GetToken().Position
	return fmt.Sprintf("%s:%d:%d", l.File, position.Line, position.Column)
}

// keys returns the names that the file, or a mapping in it, may contain.
func keys(within string) (all []string) {
	for _, set := range settings {
		if set.within == within {
			all = append(all, set.name())
		}
	}
	if within == "" {
		all = append(all, "retention", "events", "crash_limit", lanesKey, limitsKey)
	}
	return all
}

// Row is a setting for people.
type Row struct {
	Key string `json:"key"`
	// Value is a text, a list of texts or a bool.
	Value  any    `json:"value"`
	Origin string `json:"origin"`
}

// Rows returns all settings, lanes and limits with their values and where those came from.
func (l *Loaded) Rows() (all []Row) {
	for _, s := range settings {
		values := s.get(&l.Config)
		var value any = strings.Join(values, ", ")
		switch {
		case s.list:
			value = append([]string{}, values...)
		case s.toggle:
			value = value == "true"
		}
		all = append(all, Row{s.key, value, l.originOf(s.key)})
	}
	return append(all, l.queueRows()...)
}
