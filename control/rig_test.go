package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/counts"
	"github.com/jobdir/jobdir/daemon/effect"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
	"github.com/jobdir/jobdir/statefs/watch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for an expected event.
const patience = 2 * time.Minute

const definitions = `
group: testrouter
name: streaming01
summary: Works through some files & says so
params:
  files: {type: integer, default: 20, minimum: 0, maximum: 1000, summary: how many}
  title: {type: string, pattern: "[a-z]+"}
handler: simulation
unique: {on_hit: off}
---
group: testrouter
name: cancelling
on_disconnect: cancel
handler: simulation
unique: {on_hit: off}
---
group: testrouter
name: pausing
on_disconnect: pause
handler: simulation
unique: {on_hit: off}
---
group: media
name: tagged
tags: [x, y]
handler: simulation
unique: {on_hit: off}
---
group: media
name: decode
params:
  title: {type: string, required: true}
  kind: {type: string, enum: [film, song]}
handler: simulation
unique: {on_hit: off}
---
group: media
name: nightly
schedule: {cron: "0 3 * * *"}
handler: simulation
---
group: once
name: return
params: {a: {type: string, normalize: [trim, lowercase, drop_blank]}, b: {type: integer, default: 1}}
handler: simulation
---
group: once
name: reject
params: {a: {type: string}}
unique: {on_hit: reject}
handler: simulation
---
group: once
name: next
params: {a: {type: string}}
unique: {on_hit: next}
handler: simulation
---
group: once
name: by
params: {a: {type: string}, b: {type: integer, default: 1}}
unique: {by: [a]}
handler: simulation
`

// rig is a real server over real files. The test acts as the daemon: it owns the directory and moves the markers.
type rig struct {
	t      *testing.T
	tree   *statefs.Tree
	owner  *statefs.Owner
	server *Server
	config Config
	tcp    net.Listener
	unix   net.Listener
	stop   context.CancelFunc
	done   chan struct{}
	err    error // of Serve, once done is closed
	logged *logBuffer
	played *daemonStatus
}

// daemonStatus plays a healthy daemon.
type daemonStatus struct {
	mu              sync.Mutex
	ready           bool
	known           chan struct{} // closed when every live operation is loaded
	swept           []bool
	owner           *statefs.Owner
	counts          map[string]uint64
	failed          []error
	lanes           statefs.LanesStatus
	outbox          statefs.OutboxStatus
	lastOutboxQuery statefs.OutboxQuery // the last query of the outbox
	reconcileErr    error
	bulk            []string                            // the arguments of Request
	tries           map[statefs.EntryName]chan struct{} // the attempts that Await waits for

	counters  counts.Counters
	history   *history.Store
	live      []history.Live
	keep      history.Retention
	guards    history.Guards
	announced map[statefs.ID]history.Live // what this process has submitted
	seen      []history.Live              // foreign markers whose state is known
	listing   bool                        // LiveIndex has no live table
	follow    map[follows]int
	waiters   effect.Waiters
	changed   func(statefs.ID)
	undurable statefs.Action  // what is carried out and not durable
	why       statefs.Waiting // why every operation waits
}

func (d *daemonStatus) Live() []history.Live {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.live
}

// LiveIndex reports every ID as unsettled whose state it does not know.
func (d *daemonStatus) LiveIndex() (*history.LiveIndex, []history.Live, func(statefs.ID) statefs.NameSet, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	listing, err := d.owner.List()
	if err != nil || d.listing {
		return nil, nil, nil, false
	}
	markers := make(map[statefs.ID]statefs.State)
	for _, marker := range listing.Markers {
		markers[marker.ID] = marker.State
	}
	living := new(history.LiveIndex)
	var unsettled []history.Live
	for _, l := range d.live {
		living.Put(l.Row)
		if markers[l.ID] != l.State {
			unsettled = append(unsettled, l)
		}
		delete(markers, l.ID)
	}
	for id, state := range markers {
		if l := d.announced[id]; l.State == state {
			living.Put(l.Row)
		} else {
			unsettled = append(unsettled, history.Live{ID: id})
		}
	}
	return living, append(unsettled, d.seen...), allNames, true
}

// Announce implements statefs.SubmitListener.
func (d *daemonStatus) Announce(rec *statefs.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	row := history.RowOf(rec)
	if d.announced == nil {
		d.announced = make(map[statefs.ID]history.Live)
	}
	d.announced[rec.ID] = history.Live{ID: rec.ID, State: rec.Status, Row: row.Pack()}
}

// Expect implements statefs.SubmitListener.
func (d *daemonStatus) Expect(...*statefs.Record) {}

// Withdraw implements statefs.SubmitListener.
func (d *daemonStatus) Withdraw(...*statefs.Record) {}

// Start implements statefs.SubmitListener.
func (d *daemonStatus) Start(*statefs.Record) {}

// Created implements statefs.SubmitListener.
func (d *daemonStatus) Created(statefs.Name) {}

func (d *daemonStatus) Waiting(statefs.ID) (statefs.Waiting, bool) { return d.why, d.why.Reason != "" }

func (d *daemonStatus) Schedules() ([]api.Schedule, error) {
	on, err := d.owner.Schedules.Enabled("media-nightly")
	return []api.Schedule{{Job: "media/nightly", Cron: "0 3 * * *", Timezone: "UTC", Enabled: on}}, err
}

// playedLanes and playedOutbox are the lanes and the outbox of the daemon that a test plays.
type (
	playedLanes  struct{ *daemonStatus }
	playedOutbox struct{ *daemonStatus }
)

// parts returns the parts of the daemon.
func (d *daemonStatus) parts() Daemon {
	return Daemon{
		Condition: d, Operations: d, Live: d, Retention: d, Counts: d, Schedules: d, Lanes: playedLanes{d},
		Outbox: playedOutbox{d},
	}
}

// Status are cookie, default, and a lane that only its operations name; the lane files hold them.
func (d playedLanes) Status() statefs.LanesStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lanes
}

func (d playedLanes) Apply() {
	one := 1
	all := statefs.LanesStatus{Limits: []statefs.LimitStatus{{Name: "tool", Known: true, Capacity: &one}}}
	for _, name := range []string{"cookie", "default", "gone"} {
		lane := statefs.LaneStatus{Name: name, Known: name != "gone", Capacity: &one, Configured: &one}
		if v, err := d.owner.Lanes.Read(statefs.LaneFile{Lane: name, Control: statefs.LanePaused}); err == nil {
			lane.Paused = &v.Hold
		}
		if v, err := d.owner.Lanes.Read(statefs.LaneFile{Lane: name, Control: statefs.LaneClosed}); err == nil {
			lane.Closed = &v.Hold
		}
		if v, err := d.owner.Lanes.Read(statefs.LaneFile{Lane: name, Control: statefs.LaneCapacity}); err == nil {
			lane.Capacity = statefs.LaneCapacityOf(v.Capacity)
		}
		all.Lanes = append(all.Lanes, lane)
	}
	if v, err := d.owner.Lanes.Read(statefs.LaneFile{Lane: statefs.AllLanes, Control: statefs.LanePaused}); err == nil {
		all.Paused = &v.Hold
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lanes = all
}

func (d *daemonStatus) Ready() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known
}

func (d *daemonStatus) OnChange(f func(statefs.ID)) { d.changed = f }

// watchFiles plays the changes of the daemon by those of the files in jobs/.
func (r *rig) watchFiles() {
	jobs, err := watch.OpenDir(r.tree.JobsDir(), func(name string) (statefs.ID, bool) {
		parsed, ok := statefs.ParseName(name)
		return parsed.ID, ok
	}, watch.Options{})
	must(r.t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(r.t.Context()))
	var group sync.WaitGroup
	group.Go(func() {
		if err := jobs.Run(ctx); err != nil {
			r.t.Error(err)
		}
	})
	group.Go(func() {
		for {
			select {
			case <-jobs.Ready():
				ids, _ := jobs.Take()
				for _, id := range ids {
					r.played.changed(id)
				}
			case <-ctx.Done():
				return
			}
		}
	})
	r.t.Cleanup(func() { stop(); group.Wait() })
}

func (d *daemonStatus) Manages(id statefs.ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.live, func(l history.Live) bool { return l.ID == id })
}

func (d *daemonStatus) AwaitRequest(id statefs.ID, ask statefs.Action) *effect.Waiter {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.waiters.Await(id, ask, func(statefs.ID) {})
	if ask == d.undurable {
		d.waiters.Settle(id, func(effect.Request) (effect.Outcome, bool) { return effect.Outcome{TookEffect: true}, false })
	}
	return w
}

func (d *daemonStatus) Stats() api.LiveStats {
	s := api.LiveStats{At: time.Now(), WindowSeconds: counts.WindowSeconds}
	s.Lanes, s.All = d.counters.Lanes(s.At)
	return s
}

func (d *daemonStatus) Delete(ctx context.Context, id statefs.ID) error {
	if state, err := d.owner.State(id); err == nil {
		return &history.HeldError{ID: id, Reason: "it is " + string(state)}
	}
	return d.history.Delete(ctx, id, d.guards, time.Now())
}

func (d *daemonStatus) Pin(ctx context.Context, id statefs.ID, pinned bool) error {
	return d.history.Pin(ctx, id, pinned)
}

func (d *daemonStatus) Prune(ctx context.Context, dryRun bool) ([]history.Victim, error) {
	if dryRun {
		return d.history.Plan(ctx, d.keep, d.guards, time.Now())
	}
	return d.history.Prune(ctx, d.keep, func() (history.Guards, error) { return d.guards, nil }, time.Now())
}

func (d *daemonStatus) Health() api.Health {
	d.mu.Lock()
	defer d.mu.Unlock()
	return api.Health{
		Ready: d.ready, Watch: api.WatchMode{Name: watch.ModeScan, Reason: "a reason"},
		Live: map[statefs.State]int{statefs.Running: 1}, Counters: d.counts,
	}
}

func (d *daemonStatus) DiskFailed(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = append(d.failed, err)
}

func (*daemonStatus) RecordUnreadable(statefs.ID) {}

func (d *daemonStatus) Sweep(_ context.Context, dryRun bool) ([]statefs.Finding, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.swept = append(d.swept, dryRun)
	if dryRun {
		return d.owner.PlanSweep(nil)
	}
	return d.owner.Sweep(nil)
}

type logBuffer struct {
	mu   sync.Mutex
	data bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.String()
}

// setup starts a server; change may alter its configuration.
func setup(t *testing.T, change ...func(*Config)) *rig {
	t.Helper()
	return setupAt(t, t.TempDir(), change...)
}

// setupAt is setup with a given storage folder.
func setupAt(t *testing.T, dir string, change ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, done: make(chan struct{}), logged: new(logBuffer)}
	var err error
	r.tree, err = statefs.Open(dir, statefs.Options{
		Durability: statefs.Process,
		Commit:     statefs.CommitOptions{Method: statefs.CommitMethod(os.Getenv("JOBDIR_COMMIT")), SegmentSize: 256 << 10},
	})
	must(t, err)
	t.Cleanup(func() { must(t, r.tree.Close()) })
	r.owner, err = statefs.Own(r.tree)
	must(t, err)
	t.Cleanup(func() { must(t, r.owner.Release()) })
	jobs := catalog.New(catalog.Options{Extra: []catalog.Source{{
		Name: "jobs.yaml",
		YAML: []byte(definitions + staged + filmDefinition),
	}}})
	must(t, jobs.Reload())
	index := r.index()
	intake := submit.NewIntake(submit.Config{
		Tree: r.tree,
		Total: func(_ *catalog.Definition, p catalog.Params) *int64 {
			if v, ok := p.Lookup("files"); ok {
				n, _ := v.Any().(int64)
				return &n
			}
			return nil
		},
	})
	intake.Ready()
	r.played = &daemonStatus{ready: true, known: make(chan struct{}), owner: r.owner, history: index}
	r.owner.SetSubmitListener(r.played)
	close(r.played.known)
	playedLanes{r.played}.Apply()
	r.config = Config{
		Intake: intake,
		Tree:   r.tree, Catalog: jobs, Daemon: r.played.parts(), Version: "v1.2.3", History: index,
		Logger: slog.New(slog.NewTextHandler(r.logged, nil)),
	}
	for _, f := range change {
		f(&r.config)
	}
	r.server, err = New(r.config)
	must(t, err)
	r.watchFiles()
	r.tcp, err = net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r.unix, err = net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	must(t, err)
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.WithoutCancel(t.Context()))
	go func() {
		defer close(r.done)
		r.err = r.server.Serve(ctx, r.tcp, r.unix)
	}()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		r.stop()
		r.await(r.done)
		must(t, r.err)
	})
	return r
}

// index opens and runs the index of ended operations.
func (r *rig) index() *history.Store {
	r.t.Helper()
	index, err := history.Open(r.owner, nil)
	must(r.t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(r.t.Context()))
	done := make(chan error, 1)
	go func() { done <- index.Run(ctx) }()
	r.t.Cleanup(func() {
		stop()
		must(r.t, <-done)
		must(r.t, index.Close())
	})
	index.CaughtUp()
	<-index.Built()
	return index
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// await fails the test when nothing arrives on ch.
func (r *rig) await(ch <-chan struct{}) {
	r.t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		r.t.Fatal("waited too long")
	}
}

// until polls a condition, with a deadline. It is for effects of the kernel or of another process; for effects of this
// process tests wait directly.
func (r *rig) until(what string, so func() bool) {
	r.t.Helper()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(patience)
	for !so() {
		select {
		case <-ticker.C:
		case <-deadline:
			r.t.Fatalf("waited too long for: %s", what)
		}
	}
}

func (r *rig) url(path string) string { return "http://" + r.tcp.Addr().String() + path }

// reply is a response with its whole body.
type reply struct {
	status int
	header http.Header
	body   string
}

func (a reply) json(t *testing.T) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal([]byte(a.body), &out); err != nil {
		t.Fatalf("%d %q is not JSON: %v", a.status, a.body, err)
	}
	return out
}

// do sends a request with headers given as "Name: value" and reads the response.
func (r *rig) do(method, path, body string, headers ...string) reply {
	r.t.Helper()
	resp := r.open(method, path, body, headers...)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	must(r.t, err)
	return reply{resp.StatusCode, resp.Header, string(data)}
}

func (r *rig) get(path string, headers ...string) reply {
	r.t.Helper()
	return r.do("GET", path, "", headers...)
}

// open sends a request without reading the body of the response.
func (r *rig) open(method, path, body string, headers ...string) *http.Response {
	r.t.Helper()
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(context.WithoutCancel(r.t.Context()), method, r.url(path), content)
	must(r.t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	must(r.t, err)
	return resp
}

// problem checks that an answer is a problem with the given status and message.
func (r *rig) problem(a reply, status int, message string) map[string]any {
	r.t.Helper()
	if a.status != status || a.header.Get("Content-Type") != front.ProblemType {
		r.t.Fatalf("got %d %s %s, want the problem %d", a.status, a.header.Get("Content-Type"), a.body, status)
	}
	p := a.json(r.t)
	if text, _ := p["error"].(string); !strings.Contains(text, message) || p["detail"] != p["error"] ||
		p["status"] != float64(status) {
		r.t.Fatalf("problem %s, want the error %q", a.body, message)
	}
	return p
}

// exchange sends bytes over a new connection and returns everything that comes back.
func (r *rig) exchange(l net.Listener, text string) string {
	r.t.Helper()
	c, err := net.Dial(l.Addr().Network(), l.Addr().String())
	must(r.t, err)
	defer c.Close()
	must(r.t, c.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(c, text)
	must(r.t, err)
	data, err := io.ReadAll(c)
	if err != nil && len(data) == 0 {
		r.t.Fatal(err)
	}
	return string(data)
}

// work is one operation that the test carries out as the daemon.
type work struct {
	rig *rig
	id  statefs.ID
	log *os.File
}

// submit submits an operation of testrouter/streaming01.
func (r *rig) submit() *work {
	r.t.Helper()
	a := r.do("POST", "/testrouter/streaming01", `{"files":2}`)
	if a.status != http.StatusCreated {
		r.t.Fatalf("submit: %d %s", a.status, a.body)
	}
	return r.take(a.header.Get(operationHeader))
}

// take returns an operation as work of the test.
func (r *rig) take(text string) *work {
	r.t.Helper()
	id, err := statefs.ParseID(text)
	must(r.t, err)
	return &work{rig: r, id: id}
}

// settle answers the clients that wait for requests of the operation, as the daemon does.
func (w *work) settle(state statefs.State, effective bool) {
	w.rig.t.Helper()
	w.rig.until("a client waits for its request", func() (there bool) {
		w.rig.played.waiters.Settle(w.id, func(r effect.Request) (effect.Outcome, bool) {
			there = there || r.Made
			return effect.Outcome{TookEffect: effective, State: state}, r.Made
		})
		return there
	})
}

// start starts the operation as the daemon does.
func (w *work) start() *work {
	t := w.rig.t
	t.Helper()
	var err error
	w.log, err = w.rig.owner.Output.AppendLog(w.id, "")
	must(t, err)
	t.Cleanup(func() { w.log.Close() })
	must(t, w.rig.owner.Move(w.id, statefs.Queued, statefs.Running))
	return w
}

func (w *work) write(text string) {
	w.rig.t.Helper()
	_, err := w.log.WriteString(text)
	must(w.rig.t, err)
}

const resultJSON = `{"result":"success","state":"completed","total":2,"processed":2,"failed":0,"processed_files":[],"failed_files":[]}`

// finish ends the operation as completed.
func (w *work) finish() {
	t := w.rig.t
	t.Helper()
	rec, err := w.rig.tree.ReadRecord(w.id)
	must(t, err)
	must(t, rec.Apply(statefs.Running, statefs.CauseDone, time.Now()))
	info, err := w.log.Stat()
	must(t, err)
	size := info.Size()
	rec.LogBytes, rec.Footer, rec.Result = &size, json.RawMessage(resultJSON), statefs.Success
	rec.FinishedSeq, err = w.rig.config.History.Number()
	must(t, err)
	now := time.Now()
	rec.FinishedAt = &now
	must(t, w.rig.owner.WriteEnd(rec))
	w.rig.config.History.Ended(rec)
	must(t, w.rig.owner.RemoveMarker(rec.ID, statefs.Running))
}

// path returns the address of the operation in the API.
func (w *work) path(rest string) string { return "/api/v1/operations/" + w.id.String() + rest }

// foreign makes the marker of a foreign program: this test's parent, which is alive.
func (r *rig) foreign(endpoint string) statefs.ID {
	r.t.Helper()
	id, err := statefs.MakeID(endpoint, time.Now(), os.Getppid(), 999999)
	must(r.t, err)
	must(r.t, os.WriteFile(filepath.Join(r.tree.JobsDir(), statefs.MarkerName(id, statefs.Running)), nil, 0o640))
	return id
}

// lineReader reads a stream line by line.
func lineReader(body io.Reader) func() string {
	in := bufio.NewReader(body)
	return func() string {
		line, err := in.ReadString('\n')
		if err != nil {
			return fmt.Sprintf("%s<%v>", line, err)
		}
		return strings.TrimSuffix(line, "\n")
	}
}

func readAll(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	must(t, err)
	return string(data)
}

// items returns the elements of a JSON array; an element that is not an object is nil.
func items(array any) []map[string]any {
	list, _ := array.([]any)
	out := make([]map[string]any, len(list))
	for i, item := range list {
		out[i], _ = item.(map[string]any)
	}
	return out
}
