package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Row is one number with what it is compared to.
type Row struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Value float64 `json:"value"`
	// Floor is the same on the bare machine, if there is such a thing.
	Floor *float64 `json:"floor,omitempty"`
	Ratio *float64 `json:"ratio,omitempty"`
	// Target is what is promised: at most so much, or at least or at most so much of the floor.
	Target *Target `json:"target,omitempty"`
	Met    *bool   `json:"met,omitempty"`
	Count  int     `json:"count,omitempty"`
}

// Target is a promise.
type Target struct {
	Most         *float64 `json:"most,omitempty"`
	LeastOfFloor *float64 `json:"least_of_floor,omitempty"`
	MostOfFloor  *float64 `json:"most_of_floor,omitempty"`
}

func most(v float64) *Target         { return &Target{Most: &v} }
func mostOfFloor(v float64) *Target  { return &Target{MostOfFloor: &v} }
func leastOfFloor(v float64) *Target { return &Target{LeastOfFloor: &v} }

func (t *Target) String() string {
	switch {
	case t == nil:
		return ""
	case t.Most != nil:
		return "≤ " + number(*t.Most)
	case t.MostOfFloor != nil:
		return "≤ " + number(*t.MostOfFloor) + " × floor"
	}
	return "≥ " + number(*t.LeastOfFloor) + " × floor"
}

// row makes a Row and judges it.
func row(name, unit string, value float64, floor *float64, target *Target, count int) Row {
	r := Row{Name: name, Unit: unit, Value: value, Floor: floor, Target: target, Count: count}
	if floor != nil && *floor > 0 {
		ratio := value / *floor
		r.Ratio = &ratio
	}
	if target == nil {
		return r
	}
	met := false
	switch {
	case target.Most != nil:
		met = value <= *target.Most
	case r.Ratio == nil:
	case target.MostOfFloor != nil:
		met = *r.Ratio <= *target.MostOfFloor
	default:
		met = *r.Ratio >= *target.LeastOfFloor
	}
	r.Met = &met
	return r
}

// times are measured durations.
type times []time.Duration

// quantile returns the smallest time that at least the share q does not exceed, in milliseconds.
func (t times) quantile(q float64) float64 {
	if len(t) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t))
	at := int(q*float64(len(sorted))+0.999999) - 1
	return float64(sorted[min(max(at, 0), len(sorted)-1)]) / float64(time.Millisecond)
}

// latencies makes the rows for the middle and the slowest of many times; a target of 0 is none.
func latencies(name string, value, floor times, p50, p99 float64) []Row {
	var rows []Row
	for _, q := range []struct {
		name   string
		share  float64
		target float64
	}{{"p50", 0.5, p50}, {"p99", 0.99, p99}} {
		var target *Target
		if q.target > 0 {
			target = most(q.target)
		}
		var low *float64
		if floor != nil {
			v := floor.quantile(q.share)
			low = &v
		}
		rows = append(rows, row(name+", "+q.name, "ms", value.quantile(q.share), low, target, len(value)))
	}
	return rows
}

// Section is the rows of one letter.
type Section struct {
	Letter     string `json:"letter"`
	Title      string `json:"title"`
	Storage    string `json:"storage,omitempty"` // when it is not that of the run
	LoadBefore string `json:"load_before"`
	LoadAfter  string `json:"load_after"`
	Rows       []Row  `json:"rows"`
}

// Results is what a run found.
type Results struct {
	Began       time.Time   `json:"began"`
	Took        string      `json:"took"`
	Environment Environment `json:"environment"`
	Sections    []Section   `json:"sections"`
}

func (s *Section) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s  %s (load average %s → %s)\n", s.Letter, s.Title, s.LoadBefore, s.LoadAfter)
	if s.Storage != "" {
		fmt.Fprintf(w, "   storage on %s\n", s.Storage)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "value\tfloor\tratio\ttarget\t\tunit\t  of\t")
	for _, r := range s.Rows {
		met := ""
		if r.Met != nil {
			met = map[bool]string{true: "met", false: "MISSED"}[*r.Met]
		}
		fmt.Fprintln(table, strings.Join([]string{
			number(r.Value), optional(r.Floor), optional(r.Ratio), r.Target.String(), met, r.Unit, "  " + r.Name,
		}, "\t"))
	}
	_ = table.Flush() // to a terminal or a pipe of the person who reads it
}

func optional(v *float64) string {
	if v == nil {
		return "-"
	}
	return number(*v)
}

// number prints three digits that count.
func number(v float64) string {
	for _, step := range []struct {
		from   float64
		format string
	}{{100, "%.0f"}, {10, "%.1f"}, {1, "%.2f"}} {
		if v >= step.from || -v >= step.from {
			return fmt.Sprintf(step.format, v)
		}
	}
	return fmt.Sprintf("%.3f", v)
}

func (r *Results) write(path string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	err = cmp.Or(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, append(data, '\n'), 0o640))
	if err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}
