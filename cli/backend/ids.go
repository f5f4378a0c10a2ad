package backend

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/statefs"
)

// resolver expands IDs of the command line: a whole ID, its end such as r42 or 42, or a beginning that
// matches only one live operation. It lists live operations at most once, and only for a shortened ID.
type resolver struct {
	list func() ([]statefs.ID, error)
	// numbered finds the operations with a number, including finished ones.
	numbered func(number uint64) ([]statefs.ID, error)
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
	live, err := r.list()
	if err != nil {
		return nil, err
	}
	number, end := idSuffix(text)
	fits := func(id statefs.ID) bool { return end != "" && strings.HasSuffix(id.String(), end) }
	var found []statefs.ID
	for _, id := range live {
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

// ID expands one ID of the command line.
func (b *Backend) ID(ctx context.Context, text string) (statefs.ID, error) {
	return b.resolver(ctx).one(text)
}

// IDs expands several IDs of the command line.
func (b *Backend) IDs(ctx context.Context, texts []string) ([]statefs.ID, error) {
	return b.resolver(ctx).all(texts)
}

// Entries expands names of the command line to entries of the outbox, or to IDs, which mean all their entries.
func (b *Backend) Entries(ctx context.Context, texts []string) ([]string, error) {
	var all []string
	ids := b.resolver(ctx)
	for _, text := range texts {
		id, entry, single := strings.Cut(text, ".")
		found, err := ids.one(id)
		if err != nil {
			return nil, err
		}
		if full := found.String(); !single {
			all = append(all, full)
		} else if name, ok := statefs.ParseEntry(full + "." + entry); ok {
			all = append(all, name.String())
		} else {
			return nil, exit.Usagef("%q is no entry of the outbox: it is an ID, a dot, and N-KIND, as in r42.1-webhook", text)
		}
	}
	return all, nil
}

func (b *Backend) resolver(ctx context.Context) *resolver {
	return &resolver{
		list:     sync.OnceValues(func() ([]statefs.ID, error) { return b.LiveIDs(ctx) }),
		numbered: func(number uint64) ([]statefs.ID, error) { return b.Numbered(ctx, number) },
	}
}
