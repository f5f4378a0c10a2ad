package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/config"
)

func (a *app) configCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the effective configuration and where each value came from",
		Long: `config prints each setting, its effective value, and where that came from. The first of these
that has a value counts: flag, environment variable, file, default.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			return a.showConfig(conf, asJSON)
		},
	}
	config.AddFlags(cmd.Flags(), false)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) showConfig(conf *config.Loaded, asJSON bool) error {
	all := conf.Rows()
	if asJSON {
		return a.streams.JSON(all)
	}
	var rows [][]string
	for _, row := range all {
		if list, ok := row.Value.([]string); ok {
			row.Value = strings.Join(list, ", ")
		}
		rows = append(rows, []string{row.Key, fmt.Sprint(row.Value), row.Origin})
	}
	return a.streams.Table([]string{"KEY", "VALUE", "FROM"}, rows)
}
