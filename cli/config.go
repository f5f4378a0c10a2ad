package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/term"
)

func (a *app) configCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the effective configuration and where each value came from",
		Long: `config prints each setting, its effective value, and where that came from. The first of these
that has a value counts: flag, environment variable, file, default.`,
		Args: noArguments,
		RunE: a.runs(func(_ context.Context, s *session, _ []string) error {
			return showConfig(s.streams, s.Config, asJSON)
		}),
	}
	config.AddFlags(cmd.Flags(), false)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func showConfig(out term.Streams, conf *config.Loaded, asJSON bool) error {
	all := conf.Rows()
	if asJSON {
		return out.JSON(all)
	}
	var rows [][]string
	for _, row := range all {
		if list, ok := row.Value.([]string); ok {
			row.Value = strings.Join(list, ", ")
		}
		rows = append(rows, []string{row.Key, fmt.Sprint(row.Value), row.Origin})
	}
	return out.Table([]string{"KEY", "VALUE", "FROM"}, rows)
}
