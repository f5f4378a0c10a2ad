package torture

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/daemon/outbox"
	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/internal/s3test"
	"github.com/jobdir/jobdir/statefs"
)

// bucketJob leaves files of a size, and delivers them. The middle of each file is a hole, so that it is cheap
// to make.
const bucketJob = `
group: t
name: leaves
params: {mib: {type: integer, required: true}, files: {type: integer, default: 1}}
run:
  - sh
  - -c
  - 'cd $JOBDIR_ARTIFACTS; for i in $(seq $JOBDIR_PARAM_FILES); do echo $i >file$i; truncate -s $((JOBDIR_PARAM_MIB << 20)) file$i; echo end >>file$i; done'
deliver:
  - s3: {endpoint: %q, bucket: videos, send: artifacts}
`

// startDelivering starts a daemon with the credentials of the server.
func (r *rig) startDelivering(args ...string) *daemon {
	r.t.Helper()
	d := r.launch(args...)
	d.cmd.Env = append(d.cmd.Env, "JOBDIR_SECRET_S3_ACCESS_KEY="+s3test.AccessKey,
		"JOBDIR_SECRET_S3_SECRET_KEY="+s3test.SecretKey)
	must(r.t, r.await(d))
	return d
}

// leave runs an operation that makes files, and returns it when it has ended.
func (r *rig) leave(d *daemon, tree *statefs.Tree, mib, files int) statefs.ID {
	r.t.Helper()
	made, err := d.SubmitOne(r.t.Context(), client.Submission{
		Job:    "t/leaves",
		Params: map[string]int{"mib": mib, "files": files},
	})
	must(r.t, err)
	ended(r.t, tree, made.ID)
	return made.ID
}

// delivered waits until the record of an operation has a delivery, and returns its location.
func delivered(t *testing.T, tree *statefs.Tree, id statefs.ID) (output *statefs.DeliveryOutput) {
	t.Helper()
	until(t, id.String()+" is delivered", func() bool {
		rec, err := tree.ReadRecord(id)
		must(t, err)
		if len(rec.Deliveries) != 1 || rec.Deliveries[0].State == statefs.DeliveryManual {
			t.Fatalf("the deliveries of %s are %+v", id, rec.Deliveries)
		}
		output = rec.Deliveries[0].Output
		return output != nil
	})
	return output
}

// checkLeft compares the objects on the server with the files of the operation.
func checkLeft(t *testing.T, tree *statefs.Tree, server *s3test.Server, id statefs.ID, output *statefs.DeliveryOutput) {
	t.Helper()
	for _, f := range output.Stored {
		left, err := os.Open(filepath.Join(tree.ArtifactsPath(id), f.Artifact))
		must(t, err)
		there, err := server.Open(t.Context(), "videos", f.Name)
		must(t, err)
		want, got := sha256.New(), sha256.New()
		_, err = io.Copy(want, left)
		must(t, err)
		n, err := io.Copy(got, there)
		must(t, err)
		if !bytes.Equal(want.Sum(nil), got.Sum(nil)) || f.SHA256 != hex.EncodeToString(want.Sum(nil)) || f.Bytes != n {
			t.Errorf("%s has %d bytes, the record says %+v", f.Name, n, f)
		}
		must(t, left.Close())
		must(t, there.Close())
	}
}

// TestKillResumesUpload kills the daemon half-way through a file: the next one uploads only the missing
// parts.
func TestKillResumesUpload(t *testing.T) {
	t.Parallel()
	server := s3test.Begin(t, s3test.Versity, "videos")
	line, err := s3test.NewLine(server.Addr(), false)
	must(t, err)
	defer line.Close()
	r := newRig(t, filepath.Join(t.TempDir(), "storage"))
	must(t, os.WriteFile(filepath.Join(r.jobs, "jobs.yaml"), fmt.Appendf(nil, bucketJob, line.URL()), 0o600))
	const parts = 8
	d := r.startDelivering()
	tree, err := statefs.Open(r.dir, statefs.Options{})
	must(t, err)
	defer func() { must(t, tree.Close()) }()
	line.Slow(64 << 20) // it is killed in the middle
	id := r.leave(d, tree, parts*outbox.DefaultPartBytes>>20, 1)
	const half = parts * outbox.DefaultPartBytes / 2
	until(t, "half of it has gone", func() bool { return line.Passed() > half })
	d.kill()
	until(t, "the connection is gone", func() bool {
		n, err := server.Uploads(t.Context(), "videos")
		return err == nil && n == 1
	})
	before := line.Passed()
	line.Slow(0)
	d = r.startDelivering()
	output := delivered(t, tree, id)
	if sent := line.Passed() - before; sent > parts*outbox.DefaultPartBytes-half+2*outbox.DefaultPartBytes {
		t.Errorf("%d bytes were sent after a kill at %d of %d", sent, before, output.Bytes)
	}
	checkLeft(t, tree, server, id, output)
	if n, err := server.Uploads(t.Context(), "videos"); err != nil || n != 0 {
		t.Errorf("%d uploads are unfinished, %v", n, err)
	}
	d.stop(t)
}

// TestDeliverInLittleMemory delivers large files, one alone and several at once: the daemon does not hold
// them in memory.
func TestDeliverInLittleMemory(t *testing.T) {
	t.Parallel()
	server := s3test.Begin(t, s3test.Versity, "videos")
	r := newRig(t, filepath.Join(t.TempDir(), "storage"))
	must(t, os.WriteFile(filepath.Join(r.jobs, "jobs.yaml"), fmt.Appendf(nil, bucketJob, server.URL()), 0o600))
	d := r.startDelivering()
	tree, err := statefs.Open(r.dir, statefs.Options{})
	must(t, err)
	defer func() { must(t, tree.Close()) }()
	small := r.leave(d, tree, 1, 2)
	checkLeft(t, tree, server, small, delivered(t, tree, small))
	before := d.peakMemory(t)
	one := r.leave(d, tree, prooftest.Count(128, 256, 2048), 1)
	checkLeft(t, tree, server, one, delivered(t, tree, one))
	var several []statefs.ID
	for i := range outbox.DefaultPerTarget {
		several = append(several, r.leave(d, tree, prooftest.Count(16, 32, 128)+i, 1))
	}
	for _, id := range several {
		checkLeft(t, tree, server, id, delivered(t, tree, id))
	}
	after := d.peakMemory(t)
	t.Logf("peak memory of the daemon: %d KiB before, %d KiB after", before, after)
	if after-before >= 32<<10 {
		t.Errorf("it took %d KiB more", after-before)
	}
	d.stop(t)
}

// peakMemory returns the peak memory of a daemon, in KiB.
func (d *daemon) peakMemory(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	must(t, err)
	_, rest, _ := strings.Cut(string(data), "VmHWM:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		t.Fatalf("the kernel does not say how much memory it has: %s", data)
	}
	kib, err := strconv.Atoi(fields[0])
	must(t, err)
	return kib
}
