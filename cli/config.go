package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/config"
)

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the effective configuration and where each value came from",
		Long: `config prints each setting, its effective value, and where that came from. The first of these
that has a value counts: flag, environment variable, file, default.`,
		Args: noArguments,
		RunE: a.runs(showConfig),
	}
	config.AddFlags(cmd.Flags(), false)
	jsonFlag(cmd)
	return cmd
}

func showConfig(_ context.Context, s *session, _ []string) error {
	all := s.Config.Rows()
	var rows [][]string
	for _, row := range all {
		if list, ok := row.Value.([]string); ok {
			row.Value = strings.Join(list, ", ")
		}
		rows = append(rows, []string{row.Key, fmt.Sprint(row.Value), row.Origin})
	}
	return s.print(all, []string{"KEY", "VALUE", "FROM"}, rows)
}
