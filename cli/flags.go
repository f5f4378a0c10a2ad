package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jobdir/jobdir/cli/config"
)

// load reads the configuration for a command.
func (a *app) load(cmd *cobra.Command) (*config.Loaded, error) {
	return config.Load(cmd.Flags())
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
