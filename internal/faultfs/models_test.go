package faultfs

import (
	"slices"
	"strings"
	"testing"
)

// script is a journal in short: one operation a word. Folder 1 is the root; file numbers are one digit.
func script(text string) []Op {
	var ops []Op
	for word := range strings.FieldsSeq(text) {
		kind, rest, _ := strings.Cut(word, ":")
		a, b, _ := strings.Cut(rest, ">")
		switch kind {
		case "mkdir":
			ops = append(ops, Op{Kind: Create, Node: number(b), Dir: root, Name: a, Mode: typeFolder | 0o755})
		case "create":
			ops = append(ops, Op{Kind: Create, Node: number(b), Dir: root, Name: a, Mode: typeFile | 0o644})
		case "write":
			ops = append(ops, Op{Kind: Write, Node: number(a), Data: []byte(b)})
		case "sync":
			ops = append(ops, Op{Kind: Sync, Node: number(a)})
		case "syncdir":
			ops = append(ops, Op{Kind: SyncDir, Node: number(a)})
		case "mv": // from the root into folder 2
			ops = append(ops, Op{Kind: Rename, Node: number(b), Dir: root, Name: a, ToDir: 2, ToName: a})
		case "rename":
			name, ino, _ := strings.Cut(b, "=")
			ops = append(ops, Op{Kind: Rename, Node: number(ino), Dir: root, Name: a, ToDir: root, ToName: name})
		case "rm":
			ops = append(ops, Op{Kind: Unlink, Node: number(b), Dir: root, Name: a})
		}
	}
	return ops
}

func number(text string) uint64 { return uint64(text[0] - '0') }

// holds are the files of an image and their content.
func holds(i *Image) string {
	var all []string
	i.walk(func(path string, _ uint64, n *node) {
		if n.folder() {
			path += "/"
		}
		all = append(all, path+"="+string(n.data))
	})
	return strings.Join(all, " ")
}

func imagesAtEnd(text string, model Model) []string {
	r := NewReplay(Empty(), script(text))
	for r.Next() {
	}
	var all []string
	for image := range r.Images(model) {
		all = append(all, holds(image))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestModels(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ops   string
		model Model
		want  []string
	}{
		"a process dies":                  {"create:a>3 write:3>x", Everything, []string{"a=x"}},
		"nothing synced":                  {"create:a>3 write:3>x", Strict, []string{""}},
		"file synced, name not":           {"create:a>3 write:3>x sync:3", Strict, []string{""}},
		"a sync makes earlier names hold": {"create:a>3 write:3>x sync:3", Ordered, []string{"a=x"}},
		"name synced, file not":           {"create:a>3 write:3>x syncdir:1", Strict, []string{"a="}},
		"name synced, file not, ordered":  {"create:a>3 write:3>x syncdir:1", Ordered, []string{"a="}},
		"both":                            {"create:a>3 write:3>x sync:3 syncdir:1", Strict, []string{"a=x"}},
		"a rename is ordered": {
			"create:a>3 write:3>x sync:3 syncdir:1 rename:a>b=3", Ordered,
			[]string{"a=x", "b=x"},
		},
		"a rename is lost": {"create:a>3 write:3>x sync:3 syncdir:1 rename:a>b=3", Strict, []string{"a=x"}},
		"half of a rename between folders": {
			"mkdir:d>2 create:a>3 syncdir:1 mv:a>3 syncdir:2", Strict,
			[]string{"a= d/= d/a="},
		},
		"a rename whose source is synced": {"mkdir:d>2 create:a>3 syncdir:1 mv:a>3 syncdir:1", Strict, []string{"d/= d/a="}},
		"any subset": {
			"create:a>3 sync:3 syncdir:1 write:3>x create:b>4", Subset,
			[]string{"a=", "a= b=", "a=x", "a=x b="},
		},
		"what was replaced does not come back": {
			"mkdir:d>2 syncdir:1 create:a>3 mv:a>3 create:a>4 mv:a>4 syncdir:2 rm:x>3", Subset,
			[]string{"a= d/= d/a=", "d/= d/a="},
		},
		"a removed name comes back": {"create:a>3 syncdir:1 rm:a>3", Strict, []string{"a="}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := imagesAtEnd(tc.ops, tc.model); !slices.Equal(got, tc.want) {
				t.Errorf("after %s: %q, want %q", tc.ops, got, tc.want)
			}
		})
	}
}

func TestHashTellsImagesApart(t *testing.T) {
	t.Parallel()
	at := func(text string) *Image {
		r := NewReplay(Empty(), script(text))
		for r.Next() {
		}
		for image := range r.Images(Everything) {
			return image
		}
		panic("no image")
	}
	base := at("create:a>3 write:3>x")
	if base.Hash() != at("create:b>4 write:4>x rename:b>a=4").Hash() {
		t.Error("the same content has two hashes")
	}
	for _, other := range []string{
		"create:b>3 write:3>x", "create:a>3 write:3>y", "create:a>3",
		"create:a>3 write:3>x create:b>4",
	} {
		if base.Hash() == at(other).Hash() {
			t.Errorf("%q has the same hash", other)
		}
	}
}
