package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker: -X github.com/jobdir/jobdir/cli.version=v1.2.3.
var version string

// Version returns the version of the program: set by the linker, else of the module, else of the commit.
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return cmp.Or(info.Main.Version, "unknown")
}

func versionLine() string {
	return fmt.Sprintf("jobdir %s (%s, %s/%s)", Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of the program",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return a.streams.JSON(map[string]string{"version": Version(), "go": runtime.Version(), "platform": runtime.GOOS +
					"/" + runtime.GOARCH})
			}
			return a.streams.Line("%s", versionLine())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON") // without a session: it reads no configuration
	return cmd
}
