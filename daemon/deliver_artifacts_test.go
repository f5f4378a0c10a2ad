package daemon

import (
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/internal/s3test"
	"github.com/jobdir/jobdir/statefs"
)

const artifactJob = `
group: test
name: leaves
params: {name: {type: string, default: "c.txt"}}
run: [sh, -c, 'cd $JOBDIR_ARTIFACTS; mkdir -p a/b; echo 1 >a/b/x.html; echo 22 >a.txt; echo 333 >"$JOBDIR_PARAM_NAME"; ln -s /etc/passwd link; ln -s a other; mkfifo pipe']
deliver:
`

// Each regular file is delivered under its own name, and nothing else is delivered.
func TestDeliverArtifacts(t *testing.T) {
	t.Parallel()
	s := s3test.Begin(t, s3test.Versity, "videos")
	out := t.TempDir()
	b := probed(t, artifactJob+`
  - s3: {endpoint: "`+s.URL()+`", bucket: videos, send: artifacts, `+keys(t, s)+`}
  - folder: {path: "`+out+`", send: artifacts, key: "${id}/of-${artifact}"}
`)
	id := b.submit("leaves", "{}")
	rec := b.delivered(id, statefs.DeliveryDelivered, statefs.DeliveryDelivered)
	want := map[string]string{"a.txt": "22\n", "a/b/x.html": "1\n", "c.txt": "333\n"}
	got, err := s.Keys(t.Context(), "videos")
	must(t, err)
	if len(got) != len(want) {
		t.Errorf("the bucket has %v", got)
	}
	for name, text := range want {
		if o := inBucket(t, s, id.String()+"/"+name); string(o.Body) != text {
			t.Errorf("%s is %q", name, o.Body)
		}
		if data, err := os.ReadFile(filepath.Join(out, id.String(), "of-"+name)); err != nil || string(data) != text {
			t.Errorf("%s is %q, %v", name, data, err)
		}
	}
	if o := inBucket(t, s, id.String()+"/a/b/x.html"); !strings.HasPrefix(o.Type, "text/html") {
		t.Errorf("a page is %s", o.Type)
	}
	output := rec.Deliveries[0].Output
	var names []string
	for _, f := range output.Stored {
		names = append(names, f.Artifact)
	}
	if !slices.IsSortedFunc(names, inOrderOfWalk) || !slices.Equal(slices.Sorted(slices.Values(names)),
		slices.Sorted(maps.Keys(want))) || output.Files != 3 || output.Bytes != 9 {
		t.Errorf("the record says %+v", output)
	}
	if output.Bucket != "videos" || output.Location != s.URL()+"/videos/" || rec.Deliveries[1].Output.Location != out {
		t.Errorf("the record says %+v, %+v", output, rec.Deliveries[1].Output)
	}
}

// An artifact without a valid name at the target does not hold back the others, and is delivered
// after a person renamed it.
func TestDeliverArtifactWithoutAName(t *testing.T) {
	t.Parallel()
	s := s3test.Begin(t, s3test.Versity, "videos")
	b := probed(t, artifactJob+`
  - s3: {endpoint: "`+s.URL()+`", bucket: videos, send: artifacts, `+keys(t, s)+`}
`)
	id := b.submit("leaves", `{"name": "A\\B"}`)
	rec := b.delivered(id, statefs.DeliveryManual)
	if !strings.Contains(rec.Deliveries[0].Error, `has a \`) {
		t.Errorf("the record says %q", rec.Deliveries[0].Error)
	}
	got, err := s.Keys(t.Context(), "videos")
	must(t, err)
	if want := []string{id.String() + "/a.txt", id.String() +
		"/a/b/x.html"}; !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("the bucket has %v", got)
	}
	dir := b.daemon.owner.ArtifactsPath(id)
	must(t, os.WriteFile(filepath.Join(dir, `Z\Z`), nil, 0o600))
	b.retryHeld(id)
	b.poll("the reason names both", func() bool {
		rec, err := b.tree.ReadRecord(id)
		return err == nil && strings.Contains(rec.Deliveries[0].Error, `"A\\B"`) &&
			strings.Contains(rec.Deliveries[0].Error, `"Z\\Z"`)
	})
	must(t, os.Remove(filepath.Join(dir, `Z\Z`)))
	must(t, os.Rename(filepath.Join(dir, `A\B`), filepath.Join(dir, "A-B")))
	b.retryHeld(id)
	rec = b.delivered(id, statefs.DeliveryDelivered)
	if o := inBucket(t, s, id.String()+"/A-B"); string(o.Body) != "333\n" || rec.Deliveries[0].Output.Files != 3 {
		t.Errorf("it is %q, the record says %+v", o.Body, rec.Deliveries[0].Output)
	}
}

// Delivering no artifacts succeeds with no files.
func TestDeliverNoArtifacts(t *testing.T) {
	t.Parallel()
	b := setup(t, deliverJob+`
  - folder: {path: "`+t.TempDir()+`", send: artifacts}
`, nil)
	id := b.submit("made", "{}")
	if rec := b.delivered(id, statefs.DeliveryDelivered); rec.Deliveries[0].Output.Files != 0 ||
		rec.Deliveries[0].Name != id.String()+"/${artifact}" {
		t.Errorf("the record says %+v", rec.Deliveries[0])
	}
}

// When a daemon stops during the delivery of many artifacts, the next one continues there; each
// artifact is counted once.
func TestDeliverManyArtifacts(t *testing.T) {
	t.Parallel()
	s := s3test.Begin(t, s3test.Versity, "videos")
	front := s3test.NewInterceptor(t, s)
	b := probed(t, `
group: test
name: leaves
run: [sh, -c, 'cd $JOBDIR_ARTIFACTS; mkdir a; for i in $(seq 130); do echo $i >file$i; echo $i >a/b$i; done']
deliver:
  - s3: {endpoint: "`+front.URL+`", bucket: videos, send: artifacts, `+keys(t, s)+`}
`)
	front.Answer(func(w http.ResponseWriter, r *http.Request) {
		if front.Requests() > 150 {
			_, _ = io.Copy(io.Discard, r.Body) // otherwise the closed connection goes unnoticed
			<-r.Context().Done()
			return
		}
		s3test.PassOn(w)
	})
	id := b.submit("leaves", "{}")
	b.poll("some are there", func() bool { return front.Requests() > 150 })
	must(t, b.stop())
	front.Answer(nil)
	b.start()
	rec := b.delivered(id, statefs.DeliveryDelivered)
	names, err := s.Keys(t.Context(), "videos")
	must(t, err)
	if o := rec.Deliveries[0].Output; o.Files != 260 || len(names) != 260 || len(o.Stored) != statefs.MaxStored ||
		o.Stored[0].Artifact != "a/b1" {
		t.Errorf("the record says %d files, %d of them named; the bucket has %d", o.Files, len(o.Stored), len(names))
	}
	if again := front.Requests() - 260; again > 100 { // the progress is written after as many files
		t.Errorf("%d were sent again", again)
	}
}

// inOrderOfWalk compares two artifacts in the order in which they are sent, folder by folder.
func inOrderOfWalk(a, b string) int {
	return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
}
