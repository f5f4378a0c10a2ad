package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/daemon/breaker"
	"github.com/jobdir/jobdir/daemon/lanes"
	"github.com/jobdir/jobdir/statefs"
)

// The keys of the file that hold a mapping by name: lanes: {cookie: {capacity: 1}} and limits: {yt-dlp: 1}.
const (
	lanesKey  = "lanes"
	limitsKey = "limits"
)

// laneKey is one key of a lane.
type laneKey struct {
	name string
	set  func(l *Loaded, c *lanes.LaneConfig, node ast.Node) error
	// show returns the value for people, without parts that may be secret; "" when it is not set.
	show func(c *lanes.LaneConfig) string
}

var laneKeys = []laneKey{
	{
		"capacity", laneText(setLaneCapacity),
		func(c *lanes.LaneConfig) string { return statefs.FormatLaneCapacity(c.Capacity) },
	},
	{"max_starts", laneText(setMaxStarts), func(c *lanes.LaneConfig) string {
		if c.Starts == 0 {
			return ""
		}
		return fmt.Sprintf("%d/%s", c.Starts, shortDuration(c.Per))
	}},
	{
		"gap", laneText(func(c *lanes.LaneConfig, text string) error { return setDuration(&c.Gap, text) }),
		func(c *lanes.LaneConfig) string {
			if c.Gap == 0 {
				return ""
			}
			return shortDuration(c.Gap)
		},
	},
	{"env", (*Loaded).setLaneEnv, func(c *lanes.LaneConfig) string {
		var names []string
		for _, entry := range c.Env { // the values may be secrets
			name, _, _ := strings.Cut(entry, "=")
			names = append(names, name)
		}
		return strings.Join(names, ", ")
	}},
	{"rotate", (*Loaded).setLaneRotation, func(c *lanes.LaneConfig) string {
		var names []string
		for _, name := range slices.Sorted(maps.Keys(c.Rotate)) {
			names = append(names, fmt.Sprintf("%s (%s)", name, term.Plural(len(c.Rotate[name]), "value", "values")))
		}
		return strings.Join(names, ", ")
	}},
	{"breaker", (*Loaded).setLaneBreaker, func(c *lanes.LaneConfig) string {
		if c.Breaker == nil {
			return ""
		}
		text := fmt.Sprintf("%s within %s, cooldown %s", term.Plural(c.Breaker.Failures, "failure", "failures"),
			shortDuration(c.Breaker.Within), shortDuration(c.Breaker.Cooldown))
		if c.Breaker.Codes != nil {
			text += ", on " + strings.Join(c.Breaker.Codes, ", ")
		}
		return text
	}},
}

// readLanes reads lanes: {NAME: {KEY: VALUE}}.
func (l *Loaded) readLanes(node ast.Node) error {
	return l.eachMember(node, lanesKey, "cookie: {capacity: 1}", func(name string, at *ast.MappingValueNode) error {
		if !statefs.ValidLane(name) {
			return exit.Usagef("%s: %q cannot be the name of a lane: small letters, digits, _ and -, a letter or digit first, 63 characters at most, and not %q", l.at(at.Key), name, statefs.AllLanes)
		}
		c := newLane()
		if _, null := at.Value.(*ast.NullNode); !null {
			err := l.eachMember(at.Value, name, "capacity: 1", func(member string, at *ast.MappingValueNode) error {
				i := slices.IndexFunc(laneKeys, func(k laneKey) bool { return k.name == member })
				if i < 0 {
					var known []string
					for _, k := range laneKeys {
						known = append(known, k.name)
					}
					return l.unknownKey(at, member, known)
				}
				l.note(laneOrigin(name, member), at)
				return laneKeys[i].set(l, &c, at.Value)
			})
			if err != nil {
				return err
			}
		}
		l.Queue.Lanes[name] = c
		return nil
	})
}

// readLimits reads limits: {NAME: CAPACITY}.
func (l *Loaded) readLimits(node ast.Node) error {
	return l.eachMember(node, limitsKey, "yt-dlp: 1", func(name string, at *ast.MappingValueNode) error {
		if !catalog.LimitName(name) {
			return exit.Usagef("%s: %q cannot be the name of a limit: small letters, digits, _ and -, a letter or digit first, 63 characters at most", l.at(at.Key), name)
		}
		text, err := l.oneText(at.Value, name)
		if err != nil {
			return err
		}
		n, err := statefs.ParseLaneCapacity(text)
		if err != nil {
			return exit.Usagef("%s: %s: %w", l.at(at.Value), name, err)
		}
		l.Queue.Limits[name] = n
		l.note(limitsKey+"."+name, at)
		return nil
	})
}

// eachMember calls do for each member of a mapping. The parser has refused duplicate names.
func (l *Loaded) eachMember(node ast.Node, of, example string,
	do func(name string, at *ast.MappingValueNode) error,
) error {
	entries, ok := members(node)
	if !ok {
		return exit.Usagef("%s: %s: expected keys and values, as in \"%s: {%s}\"", l.at(node), of, of, example)
	}
	for _, entry := range entries {
		if err := do(entry.Key.GetToken().Value, entry); err != nil {
			return err
		}
	}
	return nil
}

func (l *Loaded) unknownKey(at *ast.MappingValueNode, name string, known []string) error {
	return exit.Usagef("%s: unknown key %q; the keys are %s", l.at(at.Key), name, strings.Join(known, ", "))
}

// note notes that a value comes from the file.
func (l *Loaded) note(key string, at *ast.MappingValueNode) {
	l.origin[key] = fmt.Sprintf("file %s:%d", l.File, at.Key.GetToken().Position.Line)
}

func laneOrigin(lane, key string) string { return lanesKey + "." + lane + "." + key }

func (l *Loaded) oneText(node ast.Node, of string) (string, error) {
	values, err := l.values(node)
	if err != nil {
		return "", err
	}
	if len(values) != 1 {
		return "", exit.Usagef("%s: %s: expected one value, got %d", l.at(node), of, len(values))
	}
	return values[0], nil
}

// laneText returns the setter of a key whose value is a single text.
func laneText(set func(*lanes.LaneConfig, string) error) func(*Loaded, *lanes.LaneConfig, ast.Node) error {
	return func(l *Loaded, c *lanes.LaneConfig, node ast.Node) error {
		text, err := l.oneText(node, "the value")
		if err != nil {
			return err
		}
		if err := set(c, text); err != nil {
			return exit.Usagef("%s: %w", l.at(node), err)
		}
		return nil
	}
}

func setLaneCapacity(c *lanes.LaneConfig, text string) (err error) {
	c.Capacity, err = statefs.ParseLaneCapacity(text)
	return err
}

func setMaxStarts(c *lanes.LaneConfig, text string) error {
	starts, within, _ := strings.Cut(text, "/")
	n, err := strconv.ParseUint(starts, 10, 31)
	per, ok := param.ParseDuration(within)
	if err != nil || n < 1 || n > 9_999_999 || !ok || per <= 0 {
		return fmt.Errorf("max_starts %q is not a number of starts in a time, such as 30/1m", text)
	}
	c.Starts, c.Per = int(n), per
	return nil
}

func setDuration(into *time.Duration, text string) error {
	d, ok := param.ParseDuration(text)
	if !ok || d <= 0 {
		return fmt.Errorf("%q is not a time above zero such as 10s or 15m", text)
	}
	*into = d
	return nil
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func checkEnvName(name string) error {
	switch {
	case !envName.MatchString(name):
		return fmt.Errorf("%q cannot be the name of a variable: letters, digits and _, no digit first", name)
	case strings.HasPrefix(name, "JOBDIR_"):
		return fmt.Errorf("%q cannot be set: names that begin with JOBDIR_ are set by the daemon", name)
	}
	return nil
}

func (l *Loaded) setLaneEnv(c *lanes.LaneConfig, node ast.Node) error {
	return l.eachMember(node, "env", "PROFILE: desktop", func(name string, at *ast.MappingValueNode) error {
		if err := checkEnvName(name); err != nil {
			return exit.Usagef("%s: env: %w", l.at(at.Key), err)
		}
		text, err := l.oneText(at.Value, name)
		if err != nil {
			return err
		}
		c.Env = append(c.Env, name+"="+text)
		return nil
	})
}

func (l *Loaded) setLaneRotation(c *lanes.LaneConfig, node ast.Node) error {
	c.Rotate = map[string][]string{}
	example := "USER_AGENT: [desktop, mobile]"
	return l.eachMember(node, "rotate", example, func(name string, at *ast.MappingValueNode) error {
		if err := checkEnvName(name); err != nil {
			return exit.Usagef("%s: rotate: %w", l.at(at.Key), err)
		}
		values, err := l.values(at.Value)
		if err != nil {
			return err
		}
		if len(values) == 0 {
			return exit.Usagef("%s: rotate: %s has no values", l.at(at.Value), name)
		}
		c.Rotate[name] = values
		return nil
	})
}

func (l *Loaded) setLaneBreaker(c *lanes.LaneConfig, node ast.Node) error {
	b := &breaker.Settings{}
	known := []string{"failures", "within", "cooldown", "on"}
	example := "failures: 5, within: 10m, cooldown: 15m"
	err := l.eachMember(node, "breaker", example, func(name string, at *ast.MappingValueNode) error {
		if !slices.Contains(known, name) {
			return l.unknownKey(at, name, known)
		}
		if name == "on" {
			codes, err := l.values(at.Value)
			if err == nil && (len(codes) == 0 || slices.Contains(codes, "")) {
				err = exit.Usagef("%s: on: expected one or more error codes, none empty", l.at(at.Value))
			}
			b.Codes = codes
			return err
		}
		text, err := l.oneText(at.Value, name)
		if err != nil {
			return err
		}
		switch name {
		case "failures":
			if b.Failures, err = strconv.Atoi(text); err != nil || b.Failures < 1 || b.Failures > 10_000 {
				err = fmt.Errorf("%q is not a number from 1 to 10000", text)
			}
		case "within":
			err = setDuration(&b.Within, text)
		case "cooldown":
			err = setDuration(&b.Cooldown, text)
		}
		if err != nil {
			return exit.Usagef("%s: %s: %w", l.at(at.Value), name, err)
		}
		return nil
	})
	if err == nil && (b.Failures == 0 || b.Within == 0 || b.Cooldown == 0) {
		err = exit.Usagef("%s: breaker: it needs failures, within and cooldown, as in \"{%s}\"", l.at(node), example)
	}
	c.Breaker = b
	return err
}

// readLaneVariables reads JOBDIR_LANE_NAME_CAPACITY of each lane of the configuration.
func (l *Loaded) readLaneVariables(env map[string]string) error {
	of := map[string]string{}
	for _, name := range l.LaneNames() {
		variable := "JOBDIR_LANE_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "_CAPACITY"
		text := env[variable]
		if text == "" {
			continue
		}
		if other, taken := of[variable]; taken {
			return exit.Usagef("environment variable %s: it is of the lane %s and of the lane %s; set their capacity in the file",
				variable, other, name)
		}
		of[variable] = name
		n, err := statefs.ParseLaneCapacity(text)
		if err != nil {
			return exit.Usagef("environment variable %s: %w", variable, err)
		}
		c := l.Queue.Lanes[name]
		c.Capacity = n
		l.Queue.Lanes[name] = c
		l.origin[laneOrigin(name, "capacity")] = "environment " + variable
	}
	for _, variable := range slices.Sorted(maps.Keys(env)) {
		name, isLane := strings.CutPrefix(variable, "JOBDIR_LANE_")
		name, isCapacity := strings.CutSuffix(name, "_CAPACITY")
		if !isLane || !isCapacity || of[variable] != "" || env[variable] == "" {
			continue
		}
		return exit.Usagef("environment variable %s: there is no lane %q in the configuration; the lanes are %s", variable,
			strings.ToLower(name), strings.Join(l.LaneNames(), ", "))
	}
	return nil
}

// LaneNames returns the names of the lanes, sorted.
func (c *Config) LaneNames() []string { return slices.Sorted(maps.Keys(c.Queue.Lanes)) }

// queueRows returns the lanes and limits for people.
func (l *Loaded) queueRows() (rows []Row) {
	for _, name := range l.LaneNames() {
		c := l.Queue.Lanes[name]
		for _, k := range laneKeys {
			if value := k.show(&c); value != "" {
				key := laneOrigin(name, k.name)
				rows = append(rows, Row{key, value, l.originOf(key)})
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.Queue.Limits)) {
		key := limitsKey + "." + name
		rows = append(rows, Row{key, statefs.FormatLaneCapacity(l.Queue.Limits[name]), l.originOf(key)})
	}
	return rows
}

// shortDuration formats a duration without zero units, and whole days as such: 15m instead of 15m0s.
func shortDuration(d time.Duration) string {
	if d%term.Day == 0 && d > 0 {
		return strconv.Itoa(int(d/term.Day)) + "d"
	}
	return param.FormatDuration(d)
}
