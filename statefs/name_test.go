package statefs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseName(t *testing.T) {
	t.Parallel()
	id := foreignID(t, 1)
	for _, state := range LiveStates() {
		if got, ok := ParseName(MarkerName(id, state)); !ok || got != (Name{ID: id, State: state}) {
			t.Errorf("the marker of %s is read as %+v, %t", state, got, ok)
		}
	}
	for _, ask := range Actions() {
		if got, ok := ParseName(RequestName(id, ask)); !ok || got != (Name{ID: id, Action: ask}) {
			t.Errorf("the request %s is read as %+v, %t", ask, got, ok)
		}
	}
	unknown := Name{ID: id}
	for _, test := range []struct {
		name string
		want Name
		ok   bool
	}{
		{id.String(), Name{}, false},
		{id.String() + ".", unknown, true},
		{id.String() + ".running.bak", unknown, true},
		{id.String() + ".running123", unknown, true},
		{id.String() + ".run", unknown, true},
		{id.String() + ".RUNNING", unknown, true},
		{id.String() + ".completed", unknown, true},
		{id.String() + ".failed", unknown, true},
		{id.String() + ".json", unknown, true},
		{id.String() + ".pause", unknown, true},
		{id.String() + ".pause_requested~", unknown, true},
		{id.String() + ".pause_requested1890320360", unknown, true},
		{id.String() + "._requested", unknown, true},
		{id.String() + ".stop_requested", unknown, true},
		{id.String() + ".running\n", unknown, true},
		{"." + id.String() + ".running", Name{}, false},
		{"." + id.String() + ".running77", Name{}, false},
		{id.String() + "x.running", Name{}, false},
		{"x/" + id.String() + ".running", Name{}, false},
		{"#" + id.String() + ".running#", Name{}, false},
		{"", Name{}, false},
		{".", Name{}, false},
		{"..", Name{}, false},
		{"README", Name{}, false},
		{"a.running", Name{}, false},
	} {
		if got, ok := ParseName(test.name); got != test.want || ok != test.ok {
			t.Errorf("ParseName(%q) = %+v, %t", test.name, got, ok)
		}
	}
}

func FuzzParseName(f *testing.F) {
	const id = "g-j_2025-11-26_13-07-00_p16384_r42"
	for _, suffix := range []string{
		"", ".", ".running", ".running123", ".pause_requested", ".pause_requested.swp",
		".running/x", ".\xff",
	} {
		f.Add(id + suffix)
		f.Add("." + id + suffix)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name, ok := ParseName(text)
		switch {
		case !ok:
			if name != (Name{}) {
				t.Fatalf("%q belongs to nothing and is %+v", text, name)
			}
		case name.ID.IsZero() || name.State != "" && name.Action != "":
			t.Fatalf("%q is %+v", text, name)
		case name.State != "" && (!name.State.Live() || MarkerName(name.ID, name.State) != text):
			t.Fatalf("%q was taken for a marker: %+v", text, name)
		case name.Action != "" && RequestName(name.ID, name.Action) != text:
			t.Fatalf("%q was taken for a request: %+v", text, name)
		case !strings.HasPrefix(text, name.ID.String()+"."):
			t.Fatalf("%q does not begin with %q", text, name.ID)
		}
	})
}

func TestEveryNameHasABitOfItsOwn(t *testing.T) {
	t.Parallel()
	id, err := ParseID("g-j_2025-11-26_13-22-00_p1_r1")
	check(t, err)
	var all NameSet
	add := func(file string) {
		name, ok := ParseName(file)
		bit := name.Bit()
		if !ok || bit == 0 || bit&(bit-1) != 0 || all&bit != 0 {
			t.Errorf("%s: %b, beside %b", file, bit, all)
		}
		all |= bit
	}
	for _, state := range LiveStates() {
		add(MarkerName(id, state))
	}
	if all != AllMarkers {
		t.Errorf("the markers are %b, want %b", all, AllMarkers)
	}
	for _, ask := range Actions() {
		add(RequestName(id, ask))
	}
	if all != AllNames {
		t.Errorf("all together are %b, want %b", all, AllNames)
	}
	if name, _ := ParseName(id.String() + ".running.bak"); name.Bit() != AllNames || MarkerBit(Completed) != AllNames {
		t.Error("a name without a meaning may have been any")
	}
}

func TestObserveSeesOnlyItsNames(t *testing.T) {
	t.Parallel()
	o := ownTree(t, openTree(t, t.TempDir(), Options{Durability: Process}))
	rec := submit(t, o.Tree)
	check(t, o.Request(t.Context(), rec.ID, Pause, nil))
	check(t, os.Mkdir(filepath.Join(o.JobsDir(), MarkerName(rec.ID, Running)), 0o750))
	for _, test := range []struct {
		names             NameSet
		states, asks, odd int
	}{
		{0, 0, 0, 0},
		{MarkerBit(Queued), 1, 0, 0},
		{MarkerBit(Paused), 0, 0, 0},
		{Name{Action: Pause}.Bit(), 0, 1, 0},
		{MarkerBit(Running) | Name{Action: Cancel}.Bit(), 0, 0, 1},
		{AllNames, 1, 1, 1},
	} {
		sight, err := o.Observe(rec.ID, test.names)
		check(t, err)
		if len(sight.States) != test.states || len(sight.Inodes) != test.states || len(sight.Requests) != test.asks ||
			len(sight.Irregular) != test.odd {
			t.Errorf("%b: %+v", test.names, sight)
		}
	}
	listing, err := o.List()
	check(t, err)
	if got := listing.IDs()[rec.ID]; got != AllNames { // because one of its names is a folder
		t.Errorf("the listing has %b", got)
	}
	check(t, os.Remove(filepath.Join(o.JobsDir(), MarkerName(rec.ID, Running))))
	listing, err = o.List()
	check(t, err)
	if got := listing.IDs()[rec.ID]; got != MarkerBit(Queued)|(Name{Action: Pause}).Bit() {
		t.Errorf("the listing has %b", got)
	}
}
