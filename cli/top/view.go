package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// view is one picture: the data of one moment, independent of the terminal.
type view struct {
	address string
	now     time.Time
	stats   *client.Stats
	model   *model
	// follows reports that events are received, so that the rates are known.
	follows bool
	// note is a line about the connection, "" for none.
	note string
	// width and height are the size of the terminal in characters; 0 means unlimited.
	width, height int
}

// lines renders the view. It contains no cursor movement: control characters in texts of the work are
// escaped.
func (v *view) lines() []string {
	head := v.head()
	lanes := v.table([]string{"LANE", "RUNNING", "QUEUED", "PAUSED", "OLDEST", "WAITED", "WORKED"}, v.laneRows())
	busy, idle := v.model.busy(), v.model.idle()
	room := len(busy) + len(idle)
	if v.height > 0 {
		room = max(v.height-len(head)-len(lanes)-7, 2) // two titles, two heads, three empty lines
	}
	forBusy := min(len(busy), max(room/2, room-len(idle)))
	forIdle := min(len(idle), room-forBusy)
	out := slices.Concat(head, []string{""}, lanes)
	out = append(out, "", v.title("Running", len(busy), forBusy, v.stats.All.Running+v.stats.All.Paused))
	out = append(out, v.table([]string{"ID", "LANE", "STATE", "FOR", "PROGRESS"}, v.busyRows(busy[:forBusy]))...)
	out = append(out, "", v.title("Waiting", len(idle), forIdle, v.waiting()))
	out = append(out, v.table([]string{"ID", "LANE", "STATE", "FOR", "WHY"}, v.idleRows(idle[:forIdle]))...)
	if v.height > 0 && len(out) > v.height {
		out = out[:v.height]
	}
	for i := range out {
		out[i] = v.cut(out[i])
	}
	return out
}

func (v *view) head() []string {
	states := v.stats.States
	counts := fmt.Sprintf("%d running, %d paused, %d queued, %d later, %d for a person", states[statefs.Running],
		states[statefs.Paused],
		states[statefs.Queued], states[statefs.Scheduled]+states[statefs.FailedRetryable],
		states[statefs.FailedManual]+states[statefs.WaitingApproval])
	if v.follows {
		starts, ends := v.model.rates(v.now)
		counts += fmt.Sprintf(";  %.1f starts/s, %.1f ends/s", starts, ends)
	}
	out := []string{fmt.Sprintf("jobdir  %s  %s", v.address, v.now.Format(time.TimeOnly)), counts}
	if v.note != "" {
		out = append(out, v.note)
	}
	return out
}

// waiting returns how many live operations do not run.
func (v *view) waiting() (n int) {
	for state, count := range v.stats.States {
		if state.Live() && !isBusy(state) {
			n += count
		}
	}
	return n
}

func (v *view) laneRows() (rows [][]string) {
	for i := range v.stats.Lanes {
		l := &v.stats.Lanes[i]
		capacity := "-"
		if l.Capacity != nil {
			capacity = strconv.Itoa(*l.Capacity)
		}
		name := term.Printable(l.Name)
		if l.Held {
			name += " (paused)"
		}
		if l.Closed {
			name += " (closed)"
		}
		oldest := "-"
		if l.Queued > 0 {
			oldest = term.Shortly(duration(l.OldestWait))
		}
		rows = append(rows, []string{
			name, fmt.Sprintf("%d/%s", l.Running, capacity), strconv.Itoa(l.Queued), strconv.Itoa(l.Paused), oldest,
			took(l.Waiting), took(l.Processing),
		})
	}
	return rows
}

// took formats the median and the 99th percentile.
func took(t api.Times) string {
	if t.Count == 0 {
		return "-"
	}
	return fmt.Sprintf("%s, p99 %s", term.Shortly(duration(t.P50)), term.Shortly(duration(t.P99)))
}

func duration(s api.Seconds) time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

func (v *view) busyRows(rows []*entry) (out [][]string) {
	for _, r := range rows {
		progress := "-"
		if r.Progress != nil {
			progress = term.Printable(term.Progress(r.Progress))
		}
		if r.Stalled {
			progress += " (stalled)"
		}
		out = append(out, []string{r.ID.String(), term.Printable(r.Lane), string(r.State), v.since(r), progress})
	}
	return out
}

func (v *view) idleRows(rows []*entry) (out [][]string) {
	for _, r := range rows {
		why := "-"
		if r.Waiting != nil {
			why = term.Printable(r.Waiting.Sentence())
		}
		if r.State.NeedsPerson() {
			why = cmp.Or(term.Printable(r.Why), "a person must act") + ": jobdir show " + r.ID.String()
		}
		out = append(out, []string{r.ID.String(), term.Printable(r.Lane), string(r.State), v.since(r), why})
	}
	return out
}

func (v *view) since(r *entry) string { return term.Shortly(max(v.now.Sub(r.Since), 0)) }

// title formats the number of operations, and how many of them are shown.
func (*view) title(what string, known, seen, all int) string {
	all = max(all, known)
	if seen == all {
		return fmt.Sprintf("%s (%d)", what, all)
	}
	return fmt.Sprintf("%s (%d of %d)", what, seen, all)
}

func (v *view) table(head []string, rows [][]string) []string {
	var text strings.Builder
	_ = term.Streams{Out: &text}.Table(head, rows) // into memory
	return strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
}

// cut shortens a line to the width of the terminal.
func (v *view) cut(line string) string {
	line = strings.TrimRight(line, " ")
	if runes := []rune(line); v.width > 0 && len(runes) > v.width {
		return string(runes[:v.width])
	}
	return line
}
