package stream

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with a file below testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (see -update)\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}

func TestPrettyGolden(t *testing.T) {
	t.Parallel()
	inputs, err := filepath.Glob("testdata/json/*.in.json")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no inputs: %v", err)
	}
	for _, path := range inputs {
		name := strings.TrimSuffix(filepath.Base(path), ".in.json")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			lines, err := pretty(in)
			if err != nil {
				t.Fatal(err)
			}
			line, err := oneLine(in)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "json/"+name+".lines", append(lines, '\n'))
			golden(t, "json/"+name+".line", append(line, '\n'))
		})
	}
}

func TestStreamGolden(t *testing.T) {
	t.Parallel()
	log, err := os.ReadFile("testdata/example.log")
	if err != nil {
		t.Fatal(err)
	}
	footer, err := os.ReadFile("testdata/json/example.in.json")
	if err != nil {
		t.Fatal(err)
	}
	o := endedOperation(t, log)
	o.update(func(s *Snapshot) { s.Footer = footer })
	golden(t, "example.stream", read(t, o, 0))
	var events bytes.Buffer
	if err := Events(t.Context(), &events, nil, o.source(), 0, Heartbeat); err != nil {
		t.Fatal(err)
	}
	golden(t, "example.events", events.Bytes())
}

func TestLayoutRefuses(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"", " ", "{", "{}{}", "{\"a\":\"\n\"}", "[]", "null", "1"} {
		if out, err := pretty([]byte(in)); err == nil {
			t.Errorf("pretty(%q) = %q, want an error", in, out)
		}
	}
	for _, in := range []string{"", "{", "[1,]", "\"\r\""} {
		if out, err := oneLine([]byte(in)); err == nil {
			t.Errorf("oneLine(%q) = %q, want an error", in, out)
		}
	}
}

func jsonValue(depth int) *rapid.Generator[any] {
	text := rapid.SampledFrom([]string{"", "<log>", "a\nb", "</end_json>", `\`, `"`, `\<`, "é<", "a,b:{[", "\x00"})
	return rapid.Custom(func(t *rapid.T) any {
		switch kind := rapid.IntRange(0, 5).Draw(t, "kind"); {
		case kind == 0 && depth > 0:
			return rapid.SliceOfN(jsonValue(depth-1), 0, 3).Draw(t, "array")
		case kind <= 2 && depth > 0:
			return rapid.MapOfN(text, jsonValue(depth-1), 0, 3).Draw(t, "object")
		case kind == 3:
			return rapid.Float64Range(-1e6, 1e6).Draw(t, "number")
		case kind == 4:
			return nil
		}
		return text.Draw(t, "text")
	})
}

func TestLayoutProperties(t *testing.T) {
	t.Parallel()
	text := rapid.String()
	rapid.Check(t, func(t *rapid.T) {
		object := rapid.MapOfN(text, jsonValue(3), 0, 4).Draw(t, "object")
		var in bytes.Buffer
		enc := json.NewEncoder(&in)
		enc.SetEscapeHTML(rapid.Bool().Draw(t, "escape"))
		if err := enc.Encode(object); err != nil {
			t.Fatal(err)
		}
		want := canonical(t, in.Bytes())
		for name, layOut := range map[string]func([]byte) ([]byte, error){"pretty": pretty, "oneLine": oneLine} {
			out, err := layOut(in.Bytes())
			if err != nil {
				t.Fatalf("%s(%s): %v", name, in.Bytes(), err)
			}
			if bytes.ContainsAny(out, "<\r") || name == "oneLine" && bytes.ContainsRune(out, '\n') {
				t.Fatalf("%s(%s) = %s", name, in.Bytes(), out)
			}
			if got := canonical(t, out); got != want {
				t.Fatalf("%s(%s) = %s, which is another value", name, in.Bytes(), out)
			}
			if again, err := layOut(out); err != nil || !bytes.Equal(again, out) {
				t.Fatalf("%s twice: %s, %v, want %s", name, again, err, out)
			}
		}
	})
}

func canonical(t rapid.TB, b []byte) string {
	t.Helper()
	var value any
	if err := json.Unmarshal(b, &value); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	out, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
