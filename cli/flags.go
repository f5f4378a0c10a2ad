package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// addSettingFlags adds the flags of the shared settings, or of all others, to a command. Their values are
// only text here; loadConfig parses and checks them, so that a flag has the same rules as a line of the file.
func addSettingFlags(flags *pflag.FlagSet, shared bool) {
	for _, s := range settings {
		if s.shared != shared {
			continue
		}
		addSettingFlag(flags, s)
	}
}

func addSettingFlag(flags *pflag.FlagSet, s *setting) {
	usage := s.usage + " (" + s.variable() + ")"
	switch {
	case s.list:
		flags.StringSlice(s.flag(), nil, usage)
	case s.toggle:
		flags.Bool(s.flag(), false, usage)
	default:
		flags.String(s.flag(), "", usage)
	}
}

// load reads the configuration for a command.
func (a *app) load(cmd *cobra.Command) (*loaded, error) {
	return loadConfig(sources{flags: cmd.Flags(), lookup: lookupEnv, environ: os.Environ})
}

// jsonFlag adds --json to a command that prints data.
func jsonFlag(cmd *cobra.Command, on *bool) {
	cmd.Flags().BoolVar(on, "json", false, "print JSON")
}

// plainFlagError rewords an error of the flag parser for people.
func plainFlagError(err error) error {
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	flag := wrong.GetFlag()
	kind := map[string]string{
		"int": "a whole number", "int64": "a whole number", "uint": "a whole number from 0",
		"uint64":   "a whole number from 0",
		"duration": "a duration such as 90s or 1h30m", "bool": "true or false",
	}[flag.Value.Type()]
	if kind == "" {
		return err
	}
	return fmt.Errorf("--%s: %q is not %s", flag.Name, wrong.GetValue(), kind)
}

// negative returns the negative number that the parser took for a flag, or "" for any other mistake.
func negative(err error) string {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return ""
	}
	if name := unknown.GetSpecifiedShortnames(); name != "" && name[0] >= '0' && name[0] <= '9' {
		return "-" + name
	}
	return ""
}
