package main

import (
	"encoding/json"
	"math"
	"testing"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestPlainKeepsOrderAndText(t *testing.T) {
	t.Parallel()
	oid, _ := bson.ObjectIDFromHex("65a0000000000000000000ff")
	decimal, _ := bson.ParseDecimal128("12.50")
	doc := bson.D{
		{Key: "z", Value: "ä <b> & \"熊\"\n"},
		{Key: "a", Value: bson.A{}},
		{Key: "m", Value: bson.D{}},
		{Key: "numbers", Value: bson.A{int32(1), int64(9007199254740993), 0.5, 1e21, decimal}},
		{Key: "odd", Value: bson.A{math.NaN(), math.Inf(1), math.Inf(-1)}},
		{Key: "yes", Value: true},
		{Key: "none", Value: nil},
		{Key: "id", Value: oid},
		{Key: "at", Value: time.Date(2026, 11, 22, 12, 0, 0, 5e6, time.UTC)},
		{Key: "bytes", Value: bson.Binary{Data: []byte{1, 2, 255}}},
		{Key: "uuid", Value: bson.Binary{Subtype: bson.TypeBinaryUUID, Data: []byte("0123456789abcdef")}},
		{Key: "stamp", Value: bson.Timestamp{T: 7, I: 1}},
		{Key: "word", Value: bson.Symbol("s")},
	}
	got, err := plain(rawOf(t, doc))
	const want = `{
  "z": "ä <b> & \"熊\"\n",
  "a": [],
  "m": {},
  "numbers": [
    1,
    9007199254740993,
    0.5,
    1e+21,
    12.50
  ],
  "odd": [
    "NaN",
    "Infinity",
    "-Infinity"
  ],
  "yes": true,
  "none": null,
  "id": "65a0000000000000000000ff",
  "at": "2026-11-22T12:00:00.005Z",
  "bytes": "AQL/",
  "uuid": "30313233-3435-3637-3839-616263646566",
  "stamp": {
    "$timestamp": {
      "t": 7,
      "i": 1
    }
  },
  "word": "s"
}`
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestPlainTakesAnyValue(t *testing.T) {
	t.Parallel()
	for want, value := range map[string]any{`"text"`: "text", "[\n  1\n]": bson.A{1}, "3": 3, `"a\ufffdb"`: "a\xffb"} {
		got, err := plain(rawOf(t, value))
		if err != nil || string(got) != want || !utf8.Valid(got) {
			t.Errorf("%v becomes %q, %v, want %q", value, got, err, want)
		}
	}
}

func TestPlainKeepsTheFormOfNumbers(t *testing.T) {
	t.Parallel()
	for want, value := range map[string]any{
		"1.0": 1.0, "-2.0": -2.0, "0.0": 0.0, "0.5": 0.5, "1e-07": 1e-7, "0.0001": 1e-4, "1.5e-05": 1.5e-5,
		"123456789.0":        123456789.0,
		"1000000000000000.0": 1e15, "1e+16": 1e16, "0.1": 0.1, "0.9375": float64(float32(0.9375)),
		"1": int32(1), "-7": int64(-7),
	} {
		if got, err := plain(rawOf(t, value)); err != nil || string(got) != want {
			t.Errorf("%v becomes %s, %v, want %s", value, got, err, want)
		}
	}
}

func FuzzPlain(f *testing.F) {
	for _, doc := range []bson.D{
		{},
		{{Key: "a", Value: bson.A{1, "b", nil, 2.5}}},
		{{Key: "r", Value: bson.Regex{Pattern: "a\"b"}}, {Key: "j", Value: bson.JavaScript("f()")}},
	} {
		text, err := bson.Marshal(doc)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if bson.Raw(data).Validate() != nil {
			return // the driver gives nothing else
		}
		text, err := plain(bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: data})
		if err == nil && (!json.Valid(text) || !utf8.Valid(text)) {
			t.Errorf("%x becomes %q", data, text)
		}
	})
}
