package torture

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/internal/s3test"
	"github.com/jobdir/jobdir/statefs"
)

// TestResultsReachABucketThroughKills kills the server of a bucket, the daemon, or both, about every second,
// at any moment of a request: in the end the bucket contains each result under its name, and nothing else.
func TestResultsReachABucketThroughKills(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*shipment{
		"server": {killsTarget: true},
		"daemon": {killsDaemon: true},
		"both":   {killsTarget: true, killsDaemon: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := s3test.Begin(t, s3test.Versity, "videos")
			s.to = server
			ship(t, fmt.Sprintf(`s3: {endpoint: %q, bucket: videos, key: "detection/${id}.json"}`, server.URL()),
				prooftest.Count(20, 60, 1000), s)
			s.checkBucket(server)
		})
	}
}

// checkBucket compares a bucket with the records.
func (s *shipment) checkBucket(server *s3test.Server) {
	s.t.Helper()
	var want []string
	for id := range s.ids {
		key := "detection/" + id.String() + ".json"
		want = append(want, key)
		rec, err := s.tree.ReadRecord(id)
		must(s.t, err)
		object, err := server.Get(s.t.Context(), "videos", key)
		must(s.t, err)
		if string(object.Body) != string(rec.Footer) || object.Metadata["jobdir-delivery"] != id.String()+".1" ||
			object.Type != "application/json" {
			s.t.Errorf("%s is %q, %+v, and the footer is %s", key, object.Body, object, rec.Footer)
		}
		it := rec.Deliveries[0]
		if it.State != statefs.DeliveryDelivered || it.Output.Bucket != "videos" || it.Output.Object != key ||
			it.Output.ETag != object.ETag || it.Output.Bytes != object.Size {
			s.t.Errorf("of %s the record says %+v %+v, and there is %+v", id, it, it.Output, object)
		}
	}
	got, err := server.Keys(s.t.Context(), "videos")
	must(s.t, err)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.t.Errorf("the bucket has %d objects for %d results: %q", len(got), len(want), got)
	}
}
