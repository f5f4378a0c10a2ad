package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

func (a *app) deliveryActionCommand(ask statefs.DeliveryAction, short string) *cobra.Command {
	var opts deliveryRequest
	opts.action = ask
	cmd := &cobra.Command{
		Use:   fmt.Sprintf("%s ENTRY|ID... | %s --target TEXT ...", ask, ask),
		Short: short,
		Long: short + `.

ENTRY is as 'jobdir outbox' shows it, ID.N-KIND; an ID alone means all that the operation has to deliver. Both may be
shortened to the end of the ID: r42 or 42, r42.1-webhook. Without a daemon the request waits on disk for the next one.

Instead of names a filter chooses deliveries: the command prints how many match, and requires a confirmation. That
needs a daemon. A retry tries each target with one delivery at once, and with the others when that succeeds.`,
		Args: usageArgs(needs("an entry or ID")),
		RunE: func(cmd *cobra.Command, texts []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			if opts.filter.given() {
				return a.requestDeliveries(cmd.Context(), conf, opts)
			}
			return a.requestDelivery(cmd.Context(), conf, opts, texts)
		},
	}
	cmd.Flags().StringVar(&opts.args.Reason, "reason", "", "noted in the log of the daemon")
	opts.filter.flags(cmd)
	if ask == statefs.RetryDelivery {
		addWait(cmd, &opts.wait, "each was tried, with the error, and 1 when one failed")
	}
	return cmd
}

// deliveryRequest is a request for deliveries.
type deliveryRequest struct {
	action statefs.DeliveryAction
	args   statefs.Args
	wait   waitFlag
	// filter selects deliveries instead of names.
	filter deliveryFilter
}

func (a *app) requestDelivery(ctx context.Context, conf *config.Loaded, opts deliveryRequest, texts []string) error {
	opts.args.By = userName()
	if _, err := opts.args.JSON(); err != nil {
		return exit.Usagef("%w", err)
	}
	return a.reach(ctx, conf, func(c *client.Client) error {
		return resolveRemote(ctx, c).eachEntry(texts, func(entry string) error {
			var answer *client.DeliveryAnswer
			var err error
			if opts.action == statefs.RetryDelivery {
				answer, err = c.RetryDelivery(ctx, entry, opts.args, opts.wait.atMost())
			} else {
				answer, err = c.RequestDelivery(ctx, entry, opts.action, opts.args)
			}
			if err != nil {
				return err
			}
			a.streams.Notice("%s", answer.Message)
			return a.printEntries(answer)
		})
	}, func(tree *statefs.Tree) error {
		a.streams.Notice("no daemon is running on %s: a request waits on disk until one is", tree.Dir())
		if opts.wait.given {
			a.streams.Notice("nothing is delivered before a daemon starts: leave out --wait")
		}
		return resolveLocal(tree).eachEntry(texts, func(entry string) error {
			names, err := openDeliveries(tree, entry, opts.action)
			if err != nil {
				return err
			}
			for _, name := range names {
				if err := tree.RequestDelivery(name, opts.action, opts.args); err != nil {
					return err
				}
				a.streams.Notice("%s requested for %s", strings.ToUpper(string(opts.action[:1]))+string(opts.action[1:]), name)
			}
			return nil
		})
	})
}

// printEntries prints the state of entries. It returns an error if one was not tried or failed again.
func (a *app) printEntries(answer *client.DeliveryAnswer) error {
	code := exit.Success
	for _, e := range answer.Entries {
		line := e.Entry + "\t" + string(e.Status)
		switch {
		case e.Tried == nil:
		case !*e.Tried:
			line += "\tit was not tried in this time, and stays before all others"
			code = exit.Temporary
		case e.Status != statefs.DeliveryDelivered:
			line += "\t" + term.Printable(e.Error)
			code = max(code, exit.Failure)
		}
		if err := a.streams.Line("%s", line); err != nil {
			return err
		}
	}
	if code != exit.Success {
		return exit.With(code)
	}
	return nil
}

// eachEntry resolves all texts and then calls do for each entry or operation.
func (r *resolver) eachEntry(texts []string, do func(string) error) error {
	var all []string
	for _, text := range texts {
		id, entry, single := strings.Cut(text, ".")
		found, err := r.one(id)
		if err != nil {
			return err
		}
		if full := found.String(); !single {
			all = append(all, full)
		} else if name, ok := statefs.ParseEntry(full + "." + entry); ok {
			all = append(all, name.String())
		} else {
			return exit.Usagef("%q is no entry of the outbox: it is an ID, a dot, and N-KIND, as in r42.1-webhook", text)
		}
	}
	var failed []error
	for _, entry := range all {
		failed = append(failed, do(entry))
	}
	return errors.Join(failed...)
}

// openDeliveries finds what a request without a daemon can name: an entry, or all entries of an operation.
func openDeliveries(tree *statefs.Tree, text string,
	ask statefs.DeliveryAction,
) (names []statefs.EntryName, err error) {
	name, single := statefs.ParseEntry(text)
	id := name.ID
	if !single {
		if id, err = statefs.ParseID(text); err != nil {
			return nil, err
		}
	}
	rec, err := tree.ReadRecord(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, exit.NotFoundf("there is no operation %s", id)
	}
	if err != nil {
		return nil, err
	}
	for i := range rec.Deliveries {
		it := &rec.Deliveries[i]
		of := statefs.EntryName{ID: id, Place: it.Place, Kind: it.Kind}
		if single && of != name || it.State != statefs.DeliveryPending && it.State != statefs.DeliveryManual {
			continue
		}
		has, _, err := tree.HasEntry(of)
		if err != nil {
			return nil, err
		}
		if has || ask == statefs.DropDelivery {
			names = append(names, of)
		}
	}
	if len(names) == 0 {
		return nil, exit.NotFoundf("%s has no pending delivery to retry or drop", text)
	}
	return names, nil
}
