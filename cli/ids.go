package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

// resolver turns what a person types into IDs: a whole ID, its end such as r42 or 42, or a beginning that only one live operation has. Live operations are
// listed at most once, and only when something was shortened.
type resolver struct {
	list func() ([]statefs.ID, error)
	// numbered finds the operations with a number, also those that have ended.
	numbered func(number uint64) ([]statefs.ID, error)
	live     []statefs.ID
	done     bool
}

// mostNamed bounds how many operations an error names.
const mostNamed = 5

func (r *resolver) one(text string) (statefs.ID, error) {
	if id, err := statefs.ParseID(text); err == nil {
		return id, nil
	}
	found, err := r.find(text)
	if err != nil {
		return statefs.ID{}, err
	}
	switch len(found) {
	case 0:
		return statefs.ID{}, notFoundf("no operation is called %q: give its whole ID, or the number at its end, as r42", text)
	case 1:
		return found[0], nil
	}
	var names []string
	for _, id := range found[:min(len(found), mostNamed)] {
		names = append(names, id.String())
	}
	if more := len(found) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return statefs.ID{}, usagef("%q stands for %d operations: %s; give the whole ID of one", text, len(found), strings.Join(names, ", "))
}

// find returns the operations that a shortened ID may mean.
func (r *resolver) find(text string) ([]statefs.ID, error) {
	if !r.done {
		live, err := r.list()
		if err != nil {
			return nil, err
		}
		r.live, r.done = live, true
	}
	number, end := endOf(text)
	fits := func(id statefs.ID) bool { return end != "" && strings.HasSuffix(id.String(), end) }
	var found []statefs.ID
	for _, id := range r.live {
		if fits(id) || text != "" && strings.HasPrefix(id.String(), text) {
			found = append(found, id)
		}
	}
	if number == 0 {
		return found, nil
	}
	// Our own numbers are unique, but a foreign operation may bear any.
	all, err := r.numbered(number)
	if err != nil {
		return nil, err
	}
	for _, id := range all {
		if fits(id) && !slices.Contains(found, id) {
			found = append(found, id)
		}
	}
	return found, nil
}

// theEnd is the end of an ID: its number, and maybe more before that.
var theEnd = regexp.MustCompile(`^(?:(?:.*_)?r)?([0-9]{1,15})$`)

// endOf returns the number in an end of an ID, such as 42 of r42, p5_r42 and 42, and the end of the ID as it is written; nothing for any other text.
func endOf(text string) (number uint64, end string) {
	m := theEnd.FindStringSubmatch(text)
	if m == nil {
		return 0, ""
	}
	number, err := strconv.ParseUint(m[1], 10, 64)
	if err != nil {
		return 0, ""
	}
	if m[1] == text {
		text = "r" + text
	}
	return number, "_" + text
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
	}, numbered: func(number uint64) ([]statefs.ID, error) {
		operations, err := c.Operations(ctx, url.Values{"number": {strconv.FormatUint(number, 10)}})
		return idsOf(operations), err
	}}
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
	}, numbered: tree.Numbered}
}
