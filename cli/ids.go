package cli

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

// resolver turns what a person types into IDs: a whole ID, its end such as r42, or a beginning that only one live
// operation has. Live operations are listed at most once, and only when something was shortened.
type resolver struct {
	list func() ([]statefs.ID, error)
	// recent finds ended operations by their number; nil where only live ones are meant.
	recent func(number uint64) ([]statefs.ID, error)
	live   []statefs.ID
	done   bool
}

func (r *resolver) one(text string) (statefs.ID, error) {
	if id, err := statefs.ParseID(text); err == nil {
		return id, nil
	}
	if !r.done {
		live, err := r.list()
		if err != nil {
			return statefs.ID{}, err
		}
		r.live, r.done = live, true
	}
	var found []statefs.ID
	for _, id := range r.live {
		// Our own numbers are unique, but a foreign operation may bear any.
		numbered := text != "" && strings.HasSuffix(id.String(), "_"+text)
		if numbered || text != "" && strings.HasPrefix(id.String(), text) {
			found = append(found, id)
		}
	}
	number := numberOf(text)
	if len(found) == 0 && number > 0 && r.recent != nil {
		recent, err := r.recent(number)
		if err != nil {
			return statefs.ID{}, err
		}
		found = recent
	}
	switch len(found) {
	case 0:
		if r.recent != nil {
			return statefs.ID{}, notFoundf("no operation that is live, or was submitted since yesterday, is called %q: give its whole ID, or the r-number at its end", text)
		}
		return statefs.ID{}, notFoundf("no live operation is called %q: give its whole ID, or the r-number at its end as 'jobdir ls' shows it", text)
	case 1:
		return found[0], nil
	default:
		return statefs.ID{}, usagef("%q stands for %d operations, among them %s and %s: give the whole ID",
			text, len(found), found[0], found[1])
	}
}

// numberOf returns 42 for r42, and 0 for what is no number.
func numberOf(text string) uint64 {
	digits, ok := strings.CutPrefix(text, "r")
	number, err := strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil {
		return 0
	}
	return number
}

// all resolves several at once, before anything is done with the first.
func (r *resolver) all(texts []string) ([]statefs.ID, error) {
	var ids []statefs.ID
	for _, text := range texts {
		id, err := r.one(text)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// each does something with each of the operations that texts name, once all of them are known. One that fails keeps none of the others back.
func (r *resolver) each(texts []string, do func(statefs.ID) error) error {
	all, err := r.all(texts)
	if err != nil {
		return err
	}
	var failed []error
	for _, id := range all {
		failed = append(failed, do(id))
	}
	return errors.Join(failed...)
}

func resolveRemote(ctx context.Context, c *client.Client) *resolver {
	return &resolver{list: func() ([]statefs.ID, error) {
		operations, err := c.Operations(ctx, nil)
		return idsOf(operations), err
	}}
}

// resolveRecent also finds what has ended lately.
func resolveRecent(ctx context.Context, c *client.Client) *resolver {
	r := resolveRemote(ctx, c)
	r.recent = func(number uint64) ([]statefs.ID, error) {
		operations, err := c.Operations(ctx, url.Values{"number": {strconv.FormatUint(number, 10)}})
		return idsOf(operations), err
	}
	return r
}

func idsOf(operations []client.Operation) []statefs.ID {
	var ids []statefs.ID
	for _, op := range operations {
		ids = append(ids, op.ID)
	}
	return ids
}

func resolveLocal(tree *statefs.Tree) *resolver {
	return &resolver{list: func() ([]statefs.ID, error) {
		listing, err := tree.List()
		if err != nil {
			return nil, err
		}
		var ids []statefs.ID
		for _, marker := range listing.Markers {
			if !slices.Contains(ids, marker.ID) {
				ids = append(ids, marker.ID)
			}
		}
		return ids, nil
	}}
}

// resolveLocalRecent also finds what has ended lately.
func resolveLocalRecent(tree *statefs.Tree) *resolver {
	r := resolveLocal(tree)
	r.recent = tree.Recent
	return r
}
