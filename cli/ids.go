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

	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

// resolver expands IDs of the command line: a whole ID, its end such as r42 or 42, or a beginning that
// matches only one live operation. It lists live operations at most once, and only for a shortened ID.
type resolver struct {
	list func() ([]statefs.ID, error)
	// numbered finds the operations with a number, including finished ones.
	numbered func(number uint64) ([]statefs.ID, error)
	live     []statefs.ID
	done     bool
}

// maxNamed bounds how many operations an error names.
const maxNamed = 5

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
		return statefs.ID{}, exit.NotFoundf("there is no operation %q: give its whole ID, or r and the number at its end, such as r42", text)
	case 1:
		return found[0], nil
	}
	var names []string
	for _, id := range found[:min(len(found), maxNamed)] {
		names = append(names, id.String())
	}
	if more := len(found) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return statefs.ID{}, exit.Usagef("%q matches %d operations: %s; give the whole ID of one", text, len(found),
		strings.Join(names, ", "))
}

// find returns the operations that match a shortened ID.
func (r *resolver) find(text string) ([]statefs.ID, error) {
	if !r.done {
		live, err := r.list()
		if err != nil {
			return nil, err
		}
		r.live, r.done = live, true
	}
	number, end := idSuffix(text)
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
	// Numbers of the storage are unique, but a foreign operation may have any number.
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

// idSuffixPattern is the end of an ID: its number, optionally with a part before it.
var idSuffixPattern = regexp.MustCompile(`^(?:(?:.*_)?r)?([0-9]{1,15})$`)

// idSuffix parses an end of an ID. It returns the number, such as 42 of r42, p5_r42 and 42, and the end as it
// appears in the ID; "" for any other text.
func idSuffix(text string) (number uint64, end string) {
	m := idSuffixPattern.FindStringSubmatch(text)
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

// all resolves several IDs before the command acts on the first.
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

// each resolves all texts and then calls do for each operation. An error does not stop it.
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
	}, numbered: tree.FindByNumber}
}
