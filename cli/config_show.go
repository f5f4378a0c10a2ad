package cli

import (
	"strings"

	"github.com/spf13/cobra"
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
	addSettingFlags(cmd.Flags(), false)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) showConfig(conf *loaded, asJSON bool) error {
	type shown struct {
		Key    string `json:"key"`
		Value  any    `json:"value"`
		Origin string `json:"origin"`
	}
	var all []shown
	var rows [][]string
	for _, s := range settings {
		values := s.get(&conf.Config)
		text := strings.Join(values, ", ")
		value := any(text)
		switch {
		case s.list:
			value = append([]string{}, values...)
		case s.toggle:
			value = text == "true"
		}
		all = append(all, shown{Key: s.key, Value: value, Origin: conf.origin[s.key]})
		rows = append(rows, []string{s.key, text, conf.origin[s.key]})
	}
	for _, row := range conf.queueRows() {
		all = append(all, shown{Key: row[0], Value: row[1], Origin: row[2]})
		rows = append(rows, row)
	}
	if asJSON {
		return a.streams.JSON(all)
	}
	return a.streams.Table([]string{"KEY", "VALUE", "FROM"}, rows)
}
