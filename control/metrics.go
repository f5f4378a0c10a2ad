package control

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

const mediaMetrics = "text/plain; version=0.0.4"

// metrics collects families in the text format of Prometheus, version 0.0.4. The label values are bounded: IDs,
// parameters and object names are never labels.
type metrics struct{ text strings.Builder }

// family begins a family.
func (m *metrics) family(name, kind, help string) {
	fmt.Fprintf(&m.text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// sample writes one line; labels alternates names and values.
func (m *metrics) sample(name string, value float64, labels ...string) {
	m.text.WriteString(name)
	for i := 0; i+1 < len(labels); i += 2 {
		m.text.WriteString(map[bool]string{true: "{", false: ","}[i == 0] + labels[i] + `="` +
			labelText.Replace(labels[i+1]) + `"`)
	}
	if len(labels) > 1 {
		m.text.WriteByte('}')
	}
	m.text.WriteString(" " + strconv.FormatFloat(value, 'f', -1, 64) + "\n")
}

// one writes a family with one sample.
func (m *metrics) one(name, kind, help string, value float64) {
	m.family(name, kind, help)
	m.sample(name, value)
}

var labelText = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func boolSample(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// countStatus is what the daemon counts.
type countStatus interface {
	// Stats returns the statistics of the lanes.
	Stats() api.LiveStats
}

// figures serves counts and ages.
type figures struct {
	lists   *lists
	live    *liveTable
	daemon  conditionStatus
	counts  countStatus
	outbox  outboxStatus
	version string
}

// serveMetrics is GET /metrics.
func (s *figures) serveMetrics(w *front.Response, r *front.Request) error {
	if err := r.Query().Err(); err != nil {
		return err
	}
	m := new(metrics)
	health := s.daemon.Health()
	m.family("jobdir_info", "gauge", "The version of the daemon.")
	m.sample("jobdir_info", 1, "version", s.version)
	m.one("jobdir_ready", "gauge", "Whether operations are accepted and carried out.",
		boolSample(health.Ready && !r.Draining()))
	for _, name := range slices.Sorted(maps.Keys(health.Counters)) {
		m.one("jobdir_"+name+"_total", "counter", "Since the daemon started: "+strings.ReplaceAll(name, "_", " ")+".",
			float64(health.Counters[name]))
	}
	if j := health.Journal; j != nil {
		m.one("jobdir_journal_segments", "gauge", "Files of the journal.", float64(j.Segments))
		m.one("jobdir_journal_full_segments", "gauge", "Files of the journal that wait for a checkpoint.", float64(j.Full))
		m.one("jobdir_journal_behind", "gauge", "Operations whose files do not have their last change yet.", float64(j.Behind))
		m.one("jobdir_journal_stuck", "gauge", "Whether the journal cannot grow, or a file cannot be written.",
			boolSample(j.Lack != "" || j.Unwritten != ""))
	}
	if !s.live.isStarting() { // earlier counts would be too low
		if err := s.countOperations(m); err != nil {
			return err
		}
		s.countLanes(m)
		s.countOutbox(m)
	}
	return w.SendBytes(http.StatusOK, mediaMetrics+"; charset=utf-8", []byte(m.text.String()))
}

func (s *figures) countOperations(m *metrics) error {
	m.family("jobdir_operations", "gauge", "Operations by status: what lives, and what has ended and is kept.")
	counts, err := s.lists.countStates()
	if err != nil {
		return err
	}
	for _, state := range statefs.States() {
		if count, known := counts[state]; known || !state.Terminal() { // unknown is not 0
			m.sample("jobdir_operations", float64(count), "status", string(state))
		}
	}
	return nil
}

func (s *figures) countLanes(m *metrics) {
	lanes := s.counts.Stats().Lanes
	gauge := func(name, help string, value func(*api.LaneStats) float64) {
		m.family(name, "gauge", help)
		for i := range lanes {
			m.sample(name, value(&lanes[i]), "lane", lanes[i].Name)
		}
	}
	gauge("jobdir_lane_running", "Operations that run in a lane.",
		func(l *api.LaneStats) float64 { return float64(l.Running) })
	gauge("jobdir_lane_queued", "Operations that wait in a lane.",
		func(l *api.LaneStats) float64 { return float64(l.Queued) })
	gauge("jobdir_lane_capacity", "How many may run in a lane at once.", func(l *api.LaneStats) float64 {
		if l.Capacity == nil {
			return math.Inf(1)
		}
		return float64(*l.Capacity)
	})
	gauge("jobdir_lane_oldest_wait_seconds", "For how long the operation has waited that waits longest in a lane.",
		func(l *api.LaneStats) float64 { return float64(l.OldestWait) })
}

func (s *figures) countOutbox(m *metrics) {
	out := s.outbox.Status()
	gauge := func(name, help string, value float64) { m.one("jobdir_outbox_"+name, "gauge", help, value) }
	gauge("pending", "Deliveries that are tried until their target has them.", float64(out.Pending))
	gauge("failed_manual", "Deliveries that wait for a person.", float64(out.FailedManual))
	age := 0.0
	if out.OldestAt != nil {
		age = max(time.Since(*out.OldestAt), 0).Seconds()
	}
	gauge("oldest_seconds", "The age of the oldest delivery that is pending, 0 when none is.", age)
	down := 0.0
	for i := range out.Targets {
		down += boolSample(out.Targets[i].Down)
	}
	gauge("targets_down", "Targets of pending deliveries that are down.", down)
	m.family("jobdir_outbox_attempts_total", "counter",
		"Tries to deliver since the daemon started, by the kind of the target and how they ended; dropped deliveries were given up.")
	kinds := slices.Sorted(maps.Keys(out.Kinds))
	for _, kind := range kinds {
		c := out.Kinds[kind]
		for i, count := range []uint64{c.Delivered, c.Failed, c.Deferred, c.Refused, c.Dropped} {
			outcome := []string{"delivered", "failed", "deferred", "refused", "dropped"}[i]
			m.sample("jobdir_outbox_attempts_total", float64(count), "kind", kind, "outcome", outcome)
		}
	}
	m.family("jobdir_outbox_delivered_bytes_total", "counter", "What was delivered since the daemon started, in bytes.")
	for _, kind := range kinds {
		m.sample("jobdir_outbox_delivered_bytes_total", float64(out.Kinds[kind].Bytes), "kind", kind)
	}
}

// stats is GET /api/v1/stats.
func (s *figures) stats(w *front.Response, r *front.Request) error {
	if err := s.live.refuseAtStartup(); err != nil {
		return err
	}
	out := api.Stats{LiveStats: s.counts.Stats(), Outbox: s.outbox.Status()}
	var err error
	if out.States, err = s.lists.countStates(); err != nil {
		return err
	}
	return w.SendJSON(http.StatusOK, out)
}
