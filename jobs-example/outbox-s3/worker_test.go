package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Stored and incomplete entries of all kinds come first, more than a batch of each; the entries after them
// are stored nevertheless.
func TestStoresAndMarksWhatIsBehindStoredAndIncompleteOnes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stored, incomplete := []bson.D{}, []bson.D{}
	for i := range 13 {
		id := fmt.Sprintf("a%02d", i)
		stored = append(stored, entryOf(id, with(id)))
		w.insert(w.outbox, done(id))
		incomplete = append(incomplete, entryOf(fmt.Sprintf("b%02d", i)))
		w.insert(w.outbox, waits(fmt.Sprintf("b%02d", i)))
	}
	oid := bson.NewObjectID()
	w.insert(w.source, stored...)
	w.insert(w.source, incomplete...)
	w.insert(w.source,
		entryOf("evening-1", with("evening-1")),
		entryOf("in other", with("in other"), bson.E{Key: "bucket", Value: "other"}),
		entryOf(oid, with(oid.Hex())),
		entryOf(int32(42), with(int32(42))),
		bson.D{{Key: "_id", Value: "not yet"}, {Key: "status", Value: "running"}, with("not yet")})
	w.insert(w.outbox, waits("evening-1"), waits("in other"), waits(oid), waits(int64(42)), waits("not yet"))
	before, result := w.snapshot(), filepath.Join(t.TempDir(), "result.json")
	p := work(t, append(w.env(), "JOBDIR_RESULT="+result), "--mode=once")
	p.exits(0)
	w.check("evening-1", "videos", "detection/evening-1.json")
	w.check("in other", "other", "detection/in other.json")
	w.check(oid, "videos", "detection/"+oid.Hex()+".json")
	w.check(int32(42), "videos", "detection/42.json")
	if names := append(w.names("videos"), w.names("other")...); len(names) != 4 {
		t.Errorf("the objects are %q", names)
	}
	if m := w.marked("not yet"); m.Status != "pending" {
		t.Errorf("an entry that is not predictable: %+v", m)
	}
	if after := w.snapshot(); after != before {
		t.Errorf("the source was\n%s\nand is\n%s", before, after)
	}
	if n := p.count("it has no prediction yet"); n != len(incomplete) {
		t.Errorf("%d entries are said to have no prediction", n)
	}
	text, err := os.ReadFile(result)
	if want := `{"stored":4,"incomplete":13,"missing":0,"refused":0}`; err != nil || string(text) != want {
		t.Errorf("the result is %s, %v, want %s", text, err, want)
	}
	// The second time there is nothing to do.
	again := work(t, w.env(), "--mode=once")
	again.exits(0)
	if again.count("Stored ") != 0 {
		t.Error("it was stored twice")
	}
}

// A message that requires a person is logged once, and the entry is not stored and blocks no other entry.
func TestWhatCannotBeStoredIsAnErrorAndHoldsUpNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	long := strings.Repeat("x", 1100)
	w.insert(w.source,
		entryOf("1 nowhere", with("1 nowhere")),
		entryOf("2/../../secret", with("out")), entryOf("..", with("out")), entryOf(`3\x`, with("out")),
		entryOf("4\n", with("out")), entryOf("", with("empty")), entryOf(long, with("long")),
		entryOf("5 no bucket", with("5"), bson.E{Key: "bucket", Value: "there-is-none"}),
		entryOf("6 bad bucket", with("6"), bson.E{Key: "bucket", Value: "../videos"}),
		entryOf("7 odd bucket", with("7"), bson.E{Key: "bucket", Value: 7}),
		entryOf(true, with("a boolean")),
		entryOf("8 good", with("8 good")))
	for _, id := range []any{
		"2/../../secret", "..", `3\x`, "4\n", "", long, "5 no bucket", "6 bad bucket",
		"7 odd bucket", true, "8 good",
	} {
		w.insert(w.outbox, waits(id))
	}
	before := w.snapshot()
	p := work(t, w.env(), "--mode=once")
	p.exits(exitLeft)
	w.check("8 good", "videos", "detection/8 good.json")
	if names := append(w.names("videos"), w.names("other")...); !slices.Equal(names, []string{"detection/8 good.json"}) {
		t.Errorf("the objects are %q", names)
	}
	for _, line := range []string{
		`ERROR: "1 nowhere" is not stored: main_db.outbox has no document with this _id.`,
		`ERROR: "2/../../secret" is not stored: its _id would lead out of detection/.`, `ERROR: ".." is not stored`,
		`ERROR: "3\\x" is not stored`,
		`ERROR: "4\n" is not stored: its _id has control characters`, `ERROR: "" is not stored: its _id is empty.`,
		`makes a name of 1115 bytes`,
		`ERROR: "5 no bucket" is not stored: bucket "there-is-none": NoSuchBucket`,
		`ERROR: "6 bad bucket" is not stored: the bucket "../videos"`,
		`ERROR: "7 odd bucket" is not stored: its bucket is no string`,
		`its _id is neither a string nor an ObjectID nor a whole number but of the type boolean`,
		"1 stored, 0 without a prediction, 1 without a document in the outbox, 10 refused.",
	} {
		if n := p.count(line); n != 1 {
			t.Errorf("it says %d times %s", n, line)
		}
	}
	for _, id := range []any{"5 no bucket", "6 bad bucket", ".."} {
		if m := w.marked(id); m.Status != "pending" {
			t.Errorf("outbox of %q: %+v", id, m)
		}
	}
	if n, err := w.outbox.CountDocuments(t.Context(), bson.D{{Key: "_id", Value: "1 nowhere"}}); n != 0 || err != nil {
		t.Errorf("the missing document was made: %d, %v", n, err)
	}
	if after := w.snapshot(); after != before {
		t.Errorf("the source was\n%s\nand is\n%s", before, after)
	}
}

// A server without change streams is polled every second. Each message is logged once, however often the
// server is polled.
func TestFollowTakesWhatAppears(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.insert(w.source, entryOf("slow"), entryOf("null", bson.E{Key: "prediction", Value: nil}),
		entryOf("lonely", with("lonely")))
	w.insert(w.outbox, waits("slow"), waits("null"))
	progress := filepath.Join(t.TempDir(), "progress")
	p := work(t, append(w.env(), "JOBDIR_PROGRESS="+progress), "--every=50ms")
	p.says(`by a query every 50ms, as there are no change streams: \(NotImplemented\)`)
	p.says(`"slow": it has no prediction yet`)
	p.says(`"null": it has no prediction yet`)
	p.says(`ERROR: "lonely" is not stored`)
	for i := range 3 {
		id := fmt.Sprintf("new %d", i)
		w.insert(w.outbox, waits(id))
		w.insert(w.source, entryOf(id, with(id)))
		p.says("Stored videos/detection/" + id)
	}
	w.set(w.source, "slow", with("slow"))
	p.says("Stored videos/detection/slow.json")
	w.insert(w.outbox, waits("lonely"))
	p.says("Stored videos/detection/lonely.json")
	for _, line := range []string{`"slow": it has no`, `"null": it has no`, `"lonely" is not stored`} {
		if n := p.count(line); n != 1 {
			t.Errorf("it says %d times %s", n, line)
		}
	}
	p.stops()
	if text, err := os.ReadFile(progress); err != nil || string(text) != "5 - follow\n" {
		t.Errorf("the progress is %q, %v", text, err)
	}
	p.says("5 stored, 1 without a prediction, 0 without a document in the outbox, 0 refused.")
	w.check("slow", "videos", "detection/slow.json")
	w.check("lonely", "videos", "detection/lonely.json")
}
