package catalog

import (
	"strings"

	"github.com/jobdir/jobdir/catalog/condition"
	"github.com/jobdir/jobdir/catalog/phrase"
	"github.com/jobdir/jobdir/catalog/yamlfile"
)

func readGlob(j *jobDecoder, n *yamlfile.Node, key string) {
	glob := j.path(n, key)
	j.def.Items.Glob = glob
	if glob != "" && !refers(glob) {
		if _, err := parseGlob(glob); err != nil {
			j.Fail(n, "", "%s", err)
		}
	}
}

func readItemList(j *jobDecoder, n *yamlfile.Node, key string) { j.def.Items.ListFile = j.path(n, key) }

func checkItems(j *jobDecoder, n *yamlfile.Node) {
	if len(n.Entries) != 1 {
		j.Fail(n, "", "items must have exactly one of glob, list and range")
	}
}

func readRange(j *jobDecoder, n *yamlfile.Node, _ string) {
	if n.Kind != yamlfile.List || len(n.Elements) != 2 {
		j.Fail(n, "write [FIRST, LAST], both included", "range must be a list of two numbers")
		return
	}
	r := &Range{First: j.bound(n.Elements[0]), Last: j.bound(n.Elements[1])}
	if r.First.known() && r.Last.known() && r.First.Number > r.Last.Number {
		j.Fail(n, "", "the range ends before it begins")
	}
	j.def.Items.Range = r
}

// bound reads a number or the reference to an integer parameter, which is
// checked when the parameters are known.
func (j *jobDecoder) bound(n *yamlfile.Node) Bound {
	if n.Kind != yamlfile.Text {
		v, _ := j.Integer(n, "range")
		return Bound{Number: v}
	}
	ref := referenceAt(n.Text)
	if len(ref)+len("${}") == len(n.Text) {
		j.uses = append(j.uses, use{at: n, text: n.Text, filled: true})
		if name, ok := strings.CutPrefix(ref, "params."); ok {
			return Bound{Param: name}
		}
		if strings.HasPrefix(ref, condition.StepsPrefix) {
			return Bound{Output: ref}
		}
	}
	j.Fail(n, `write a number or "${params.NAME}"`, "range cannot have %q", phrase.Clip(n.Text))
	return Bound{}
}
