package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/backend"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/client"
)

type eventsOptions struct {
	filter map[string]*[]string // by the names of the endpoint
	after  int64
	count  int
}

func (a *app) eventsCommand() *cobra.Command {
	opts := eventsOptions{filter: map[string]*[]string{}}
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Write what happens, as it happens",
		Long: `events writes a line for each event: transitions, progress, wait reasons, changes of lanes, deliveries,
sweeps. It runs until it is interrupted. After a restart of the daemon it continues with the next event. Missing
events, such as the last ones of a daemon that was killed, are a line of the type gap.

With --after it begins with the events that are kept: 0 is all of them. The completion feed has every end of an
operation exactly once (GET /api/v1/finished). A filter may be repeated.`,
		Example: "  jobdir events --job media/decode --type transition",
		Args:    noArguments,
		RunE:    a.follows(opts.write),
	}
	flags := cmd.Flags()
	add := func(name, help string) { opts.filter[name] = flags.StringArray(name, nil, "only those "+help) }
	for _, name := range []string{"job", "group", "lane", "key", "tag"} {
		add(name, operationFilters[name])
	}
	add("id", "of this operation, with each reason for which it waits")
	add("type", "of this type: transition, step, progress, waiting, stalled, lane, delivery, target, sweep or gap")
	flags.Int64Var(&opts.after, "after", -1, "begin after the event with this number; -1: with new events")
	flags.IntVar(&opts.count, "count", 0, "end after so many; 0: never")
	jsonFlag(cmd)
	return cmd
}

func (opts *eventsOptions) write(ctx context.Context, s *session, _ []string) error {
	if opts.after < -1 {
		return exit.Usagef("flag --after: %d is the number of no event", opts.after)
	}
	if opts.count < 0 {
		return exit.Usagef("flag --count: %d is below zero", opts.count)
	}
	c, err := s.connect(ctx)
	if err != nil {
		return err
	}
	filter := url.Values{}
	for name, values := range opts.filter {
		filter[name] = slices.Clone(*values)
	}
	ids, err := backend.Remote(c).IDs(ctx, filter["id"])
	if err != nil {
		return err
	}
	for i, id := range ids {
		filter["id"][i] = id.String()
	}
	if opts.after >= 0 {
		filter.Set("after", strconv.FormatInt(opts.after, 10))
	}
	seen := 0
	for e, err := range c.Events(ctx, filter) {
		if err != nil {
			return err
		}
		line := string(e.Raw)
		if !s.json {
			line = eventLine(e)
		}
		if err := s.streams.Line("%s", line); err != nil {
			return err
		}
		if seen++; seen == opts.count {
			return nil
		}
	}
	return nil
}

// eventLine formats an event as one line for people. It escapes the control characters in texts of the work.
func eventLine(e *client.Event) string {
	about := e.ID.String()
	if e.ID.IsZero() {
		about = e.Lane
	}
	about = strings.TrimSpace(term.Printable(about + "  " + eventText(e)))
	return fmt.Sprintf("%s  %-10s  %s", shownTime(&e.At), term.Printable(e.Type), about)
}

func eventText(e *client.Event) string {
	switch {
	case e.To != "":
		return transitionText(e)
	case e.Step != "":
		return stepText(e)
	case e.Progress != nil:
		return term.Progress(e.Progress)
	case e.Waiting != nil:
		return "waits: " + e.Waiting.Sentence()
	case e.Stalled != nil && *e.Stalled:
		return "stalled: no output and no progress"
	case e.Stalled != nil:
		return "moves again"
	case e.Change != nil:
		return changeText(e.Change)
	case e.Delivery != nil:
		return deliveryText(e.Delivery)
	case e.Target != nil:
		return targetText(e.Target)
	case e.Sweep != nil && e.Sweep.Findings == 0:
		return "nothing found"
	case e.Sweep != nil:
		return term.Plural(e.Sweep.Findings, "finding", "findings") + ": " + strings.Join(e.Sweep.Files, ", ")
	case e.Gap != nil && e.Gap.To < e.Gap.From:
		return "no event is missing: " + gapReasons[e.Gap.Reason]
	case e.Gap != nil:
		return fmt.Sprintf("events %d to %d are missing: %s", e.Gap.From, e.Gap.To, gapReasons[e.Gap.Reason])
	}
	return ""
}

func transitionText(e *client.Event) string {
	if e.From == "" {
		return fmt.Sprintf("%s (%s)", e.To, e.Cause)
	}
	text := fmt.Sprintf("%s -> %s (%s)", e.From, e.To, e.Cause)
	if e.Result != "" && string(e.Result) != string(e.To) {
		text += ", " + string(e.Result)
	}
	if e.Error != nil {
		text += ": " + cmp.Or(e.Error.Message, e.Error.Code)
	}
	return text
}

func stepText(e *client.Event) string {
	text := fmt.Sprintf("step %d / %d %s: %s", e.Number, e.Total, e.Step, e.Status)
	if e.ErrorCode != "" {
		text += " (" + e.ErrorCode + ")"
	}
	if e.Error != nil {
		text += ": " + e.Error.Message
	}
	return text
}

func deliveryText(d *client.EventDelivery) string {
	text := fmt.Sprintf("delivery %d (%s) is %s", d.Target, d.Kind, d.Status)
	switch d.By {
	case "":
	case "manually":
		text += ", manually"
	default:
		text += ", requested by " + d.By
	}
	if detail := cmp.Or(d.Error, d.Location); detail != "" {
		text += ": " + detail
	}
	return text
}

// gapReasons maps the reason of a gap to the text for people.
var gapReasons = map[string]string{
	"crash":          "the daemon was killed, and may not have published its last events",
	"retention":      "they are no longer kept",
	"overflow":       "more happened than could be written",
	"lost":           "they could not be written, or cannot be read",
	"slow":           "they were not read for too long and come next, as far as they are kept",
	"unknown_number": "no event of this storage has such a number",
}

func changeText(c *client.LaneChange) string {
	text := c.What
	if c.Capacity != nil {
		text += " " + strconv.Itoa(*c.Capacity)
	}
	if c.Until != nil {
		text += " until " + term.Time(*c.Until)
	}
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	return text
}

func targetText(t *client.EventTarget) string {
	if t.Down {
		return fmt.Sprintf("%s is down, %d wait for it: %s", t.Name, t.Pending, t.Error)
	}
	return fmt.Sprintf("%s is back, %d wait for it", t.Name, t.Pending)
}
