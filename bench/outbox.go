package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/jobdir/jobdir/daemon/outbox"
	"github.com/jobdir/jobdir/internal/s3test"
)

// storedJob ends at once, and its result goes into a bucket.
const storedJob = "group: bench\nunique: {on_hit: off}\nname: noop\nsummary: Ends at once\nhandler: noop\n" +
	"deliver:\n  - s3: {endpoint: %q, bucket: " + resultBucket + ", access_key_file: %q, secret_key_file: %q}\n"

const resultBucket = "results"

// measureOutbox is section o.
func measureOutbox(ctx context.Context, b *bench) (rows []Row, err error) {
	disk, done, err := b.onDisk(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	d := &deliverer{bench: disk, endpoint: nowhere}
	dir, err := disk.folder("s3")
	if err != nil {
		return nil, err
	}
	store, missing := s3test.New(s3test.Versity, dir)
	if missing == nil {
		d.store, d.endpoint = store, store.URL()
		defer store.Kill()
	}
	if rows, err = d.pendingRows(ctx); err != nil {
		return rows, err
	}
	if missing != nil {
		fmt.Fprintln(os.Stderr, "bench: section o measures no rate:", missing)
		return rows, nil
	}
	more, err := d.rateRows(ctx)
	return append(rows, more...), err
}

// nowhere is an address without a listener: the port of discard(9) is closed on this machine, or accepts no
// requests.
const nowhere = "http://127.0.0.1:9"

// deliverer is a daemon whose jobs deliver to an S3 server that runs only when the test starts it.
type deliverer struct {
	*bench
	*server

	endpoint string
	store    *s3test.Server
	made     bool // the bucket
	jobs     string
	storage  string
}

// begin starts the daemon, on the storage that it has when it has one.
func (d *deliverer) begin(ctx context.Context) (err error) {
	if d.jobs == "" {
		keys, err := d.folder("keys")
		if err != nil {
			return err
		}
		access, secret := filepath.Join(keys, "access"), filepath.Join(keys, "secret")
		err = errors.Join(os.WriteFile(access, []byte(s3test.AccessKey), 0o600),
			os.WriteFile(secret, []byte(s3test.SecretKey), 0o600))
		if err != nil {
			return err
		}
		if d.jobs, err = d.definitions(map[string]string{"noop.yaml": fmt.Sprintf(storedJob, d.endpoint, access,
			secret)}); err != nil {
			return err
		}
	}
	if d.storage == "" {
		if d.storage, err = d.folder("storage"); err != nil {
			return err
		}
	}
	var said ownServer
	c, err := startRole(ctx, "load", ownServer{Storage: d.storage, Jobs: d.jobs, Durability: d.durability}, &said)
	if err != nil {
		return err
	}
	d.server = &server{child: c, base: said.Base, storage: d.storage}
	return nil
}

func (d *deliverer) entries() string { return filepath.Join(d.storage, "outbox") }

// fill has so many operations end whose results cannot be delivered.
func (d *deliverer) fill(ctx context.Context, count int) error {
	f := &feed{server: d.server}
	if err := f.skip(ctx); err != nil {
		return err
	}
	for left := count; left > 0; left -= fillSize {
		if _, err := call(ctx, http.MethodPost, d.base+"/api/v1/operations",
			listOf("bench/noop", min(left, fillSize))); err != nil {
			return err
		}
	}
	return f.await(ctx, count)
}

// pendingRows measures what results take that wait for a server that is away.
func (d *deliverer) pendingRows(ctx context.Context) (rows []Row, err error) {
	count := d.counts.queued
	if err := d.begin(ctx); err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, d.stop(ctx))
		d.storage = ""
	}()
	if err := d.fill(ctx, fewPending); err != nil { // what is made once
		return nil, err
	}
	before, err := memoryOf(d.child, true)
	if err == nil {
		err = d.fill(ctx, count)
	}
	if err != nil {
		return nil, err
	}
	after, err := memoryOf(d.child, true)
	if err != nil {
		return nil, err
	}
	if err := d.halt(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := d.begin(ctx); err != nil {
		return nil, err
	}
	ready := time.Since(began)
	grown := after.minus(before)
	what := fmt.Sprintf("%d results pending: ", count)
	return []Row{
		row(what+"memory of each, heap and stacks in use", "KiB", perOne(grown.inUse, count), nil, nil, count),
		row(what+"memory of each, resident", "KiB", perOne(grown.resident, count), nil, nil, count),
		row(what+"memory of each, resident after a collection of garbage", "KiB",
			perOne(grown.settled, count), nil, nil, count),
		row(what+"start until it serves", "s", ready.Seconds(), nil, nil, count),
	}, nil
}

// fewPending is how many results wait before the memory is looked at for the first time.
const fewPending = 40

// rateRows measures how fast results that have waited reach the server when it is back, beside the same library in a
// loop.
func (d *deliverer) rateRows(ctx context.Context) (rows []Row, err error) {
	count := d.counts.load
	ours := &loaded{name: "jobdir", each: func() (float64, error) { return d.drain(ctx, count) }}
	bare := &loaded{name: "floor", each: func() (float64, error) { return d.putAll(ctx, count) }}
	if err := middle(d.counts.repeats, ours, bare); err != nil {
		return nil, err
	}
	low := bare.rate()
	what := fmt.Sprintf("%s: results delivered to S3, %d at once; floor: the same library in a loop, as many at once",
		d.durability, outbox.DefaultPerTarget)
	return []Row{row(what, "1/s", ours.rate(), &low, nil, count)}, nil
}

// drain has results wait while the server is away, starts it, and measures from the first that is delivered to the
// last.
func (d *deliverer) drain(ctx context.Context, count int) (rate float64, err error) {
	d.store.Kill()
	if err := d.begin(ctx); err != nil {
		return 0, err
	}
	defer func() {
		err = errors.Join(err, d.stop(ctx))
		d.storage = ""
	}()
	if err := errors.Join(d.fill(ctx, count), d.halt(ctx)); err != nil {
		return 0, err
	}
	if err := d.serve(ctx); err != nil {
		return 0, err
	}
	seen, err := watch(inDelete, nil, d.entries())
	if err != nil {
		return 0, err
	}
	defer seen.close()
	if err := d.begin(ctx); err != nil {
		return 0, err
	}
	var first, last event
	for left := count; left > 0; {
		e, err := seen.await(ctx, "a result to be delivered",
			func(e event) bool { return strings.HasSuffix(e.name, ".pending") })
		if err != nil {
			return 0, fmt.Errorf("%d of %d results are left: %w", left, count, err)
		}
		if left == count {
			first = e
		}
		last = e
		left--
	}
	return float64(count-1) / last.at.Sub(first.at).Seconds(), nil
}

// serve runs the server of S3 with its bucket.
func (d *deliverer) serve(ctx context.Context) error {
	d.store.Kill()
	if err := d.store.Start(ctx); err != nil {
		return err
	}
	if d.made {
		return nil
	}
	d.made = true
	return d.store.MakeBucket(ctx, resultBucket)
}

// putAll stores as many objects of the same size with nothing else around it.
func (d *deliverer) putAll(ctx context.Context, count int) (float64, error) {
	keys, err := d.store.Keys(ctx, resultBucket)
	if err != nil || len(keys) == 0 {
		return 0, fmt.Errorf("nothing was delivered: %w", err)
	}
	sample, err := d.store.Get(ctx, resultBucket, keys[0])
	if err != nil {
		return 0, err
	}
	at, err := url.Parse(d.store.URL())
	if err != nil {
		return 0, err
	}
	core, err := minio.NewCore(at.Host, &minio.Options{
		Creds: credentials.NewStaticV4(d.store.AccessKey, d.store.SecretKey, ""), Region: "us-east-1", MaxRetries: 1,
		Transport: outbox.NewS3Transport(),
	})
	if err != nil {
		return 0, err
	}
	sum := sha256.Sum256(sample.Body)
	began := time.Now()
	err = atOnce(outbox.DefaultPerTarget, count, func(n int) error {
		_, err := core.PutObject(ctx, resultBucket, "bare/"+strconv.Itoa(n)+".json", bytes.NewReader(sample.Body),
			sample.Size, "", hex.EncodeToString(sum[:]),
			minio.PutObjectOptions{ContentType: "application/json", UserMetadata: map[string]string{
				"x-amz-checksum-sha256": base64.StdEncoding.EncodeToString(sum[:]),
				outbox.DeliveryMetadata: "bare." + strconv.Itoa(n),
			}})
		return err
	})
	return float64(count) / time.Since(began).Seconds(), err
}
