package cli

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// addSettingFlags gives a command the flags of the settings, of the shared ones or of all others. Their values are only
// text here; loadConfig reads and checks them, so that a flag has the same rules as a line of the file.
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
