package decide

import (
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

// The rows of testdata/decisions.txt were recorded from the daemon under its test suite: observation | snapshot |
// environment => effect; cause; line, then "counts", "dies" and "crashed". What is not named is zero.
func TestDecisions(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/decisions.txt")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for row := range strings.Lines(string(text)) {
		facts, want, _ := strings.Cut(strings.TrimSpace(row), " => ")
		part := strings.Split(facts, "|")
		kind, rest, _ := strings.Cut(part[0], " ")
		kinds[kind] = true
		var s Snapshot
		var e Env
		seen := reflect.New(reflect.TypeOf(zero(t, kind))).Elem()
		for i, into := range []reflect.Value{seen, reflect.ValueOf(&s).Elem(), reflect.ValueOf(&e).Elem()} {
			part[0] = rest
			for fact := range strings.FieldsSeq(part[i]) {
				name, value, _ := strings.Cut(fact, "=")
				set(t, into.FieldByName(name), value)
			}
		}
		observed, is := reflect.TypeAssert[Observation](seen)
		if !is {
			t.Fatalf("%s is no observation", kind)
		}
		if got := written(Decide(s, observed, e)); got != want {
			t.Errorf("%s\n got %s\nwant %s", facts, got, want)
		}
	}
	for _, o := range observations {
		if kind := reflect.TypeOf(o).Name(); !kinds[kind] {
			t.Errorf("no row has %s", kind)
		}
	}
}

// observations has one of each kind.
var observations = []Observation{
	MarkersSeen{},
	MarkerGone{},
	MarkerLost{},
	Found{},
	Requested{},
	WorkSeen{},
	WorkEnded{},
	AttemptFailed{},
	RetryPlanned{},
	EndNoted{},
	StepReached{},
	LimitExpired{},
	TimeCame{},
	ParentSeen{},
	OptionalSeen{},
	StallChanged{},
	DaemonStops{},
}

func zero(t *testing.T, kind string) Observation {
	t.Helper()
	for _, o := range observations {
		if reflect.TypeOf(o).Name() == kind {
			return o
		}
	}
	t.Fatalf("there is no observation %q", kind)
	return nil
}

func set(t *testing.T, field reflect.Value, value string) {
	t.Helper()
	switch field.Kind() {
	case reflect.Bool:
		field.SetBool(true)
	case reflect.Int:
		n, err := strconv.Atoi(value)
		if err != nil {
			t.Fatal(err)
		}
		field.SetInt(int64(n))
	case reflect.String:
		field.SetString(value)
	case reflect.Slice:
		for state := range strings.SplitSeq(value, ",") {
			field.Set(reflect.Append(field, reflect.ValueOf(statefs.State(state))))
		}
	default:
		t.Fatalf("a row has a fact that nothing reads, with the value %q", value)
	}
}

func written(a Answer) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s; %s; %q", a.Effect, a.Cause, a.Line)
	for _, flag := range []struct {
		name string
		set  bool
	}{{"counts", a.Counts}, {"dies", a.Dies}, {"crashed", a.Crashed}} {
		if flag.set {
			text.WriteString(" " + flag.name)
		}
	}
	return text.String()
}
