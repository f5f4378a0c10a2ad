package control

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs"
)

// A list right after a flood of submits that the daemon has not seen yet contains each of them without reading its
// record: the test moves most records away.
func TestListsAfterAFloodOfSubmits(t *testing.T) {
	t.Parallel()
	r := setup(t)
	flood := prooftest.Count(600, 3000, 3000)
	var list []map[string]any
	for i := range flood {
		list = append(list, map[string]any{
			"job":  "testrouter/streaming01",
			"tags": []string{"flood", fmt.Sprintf("of-%d", i%2)},
		})
	}
	body, err := json.Marshal(list)
	must(t, err)
	var out struct {
		Operations []struct{ ID statefs.ID } `json:"operations"`
	}
	must(t, json.Unmarshal([]byte(r.do("POST", "/api/v1/operations", string(body)).body), &out))
	if len(out.Operations) != flood {
		t.Fatalf("%d operations", len(out.Operations))
	}
	shown := out.Operations[flood-50:]
	for _, op := range out.Operations[:flood-50] {
		must(t, os.Remove(r.tree.RecordPath(op.ID)))
	}
	r.wantCount("status=queued", strconv.Itoa(flood))
	r.wantCount("tag=flood", strconv.Itoa(flood))
	r.wantCount("tag=of-1", strconv.Itoa(flood/2))
	page := r.do("GET", "/api/v1/operations?limit=50", "")
	var found struct {
		Operations []struct{ ID statefs.ID } `json:"operations"`
	}
	must(t, json.Unmarshal([]byte(page.body), &found))
	slices.Reverse(found.Operations)
	if page.status != 200 || !slices.Equal(found.Operations, shown) {
		t.Errorf("the newest page: %d with %d operations", page.status, len(found.Operations))
	}
}
