//go:build linux

package keeper

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// piecemeal is a socket that returns its data in pieces of one size.
type piecemeal struct {
	data  []byte
	piece int
	files []*os.File // returned with the first piece
}

func (p *piecemeal) read(into []byte) (int, []*os.File, error) {
	if len(p.data) == 0 {
		return 0, nil, io.EOF
	}
	n := copy(into[:min(p.piece, len(into))], p.data)
	p.data = p.data[n:]
	files := p.files
	p.files = nil
	return n, files, nil
}

func (p *piecemeal) write(data []byte, _ *os.File) error {
	p.data = append(p.data, data...)
	return nil
}

func (*piecemeal) SetWriteDeadline(time.Time) error { return nil }
func (*piecemeal) closeWrite()                      {}
func (*piecemeal) Close() error                     { return nil }

func TestFramesInPieces(t *testing.T) {
	t.Parallel()
	want := []request{
		{Number: 1, Verb: verbHello, Hello: &hello{1, 2, "instance"}},
		{Number: 2, Verb: verbStart, Key: Key{"id", 3, 4}, Start: &order{
			Command: Command{Args: texts{"a", "", "\xff\n"}, Env: texts{"LONG=" + strings.Repeat("x", 100<<10)}},
			Dir:     []byte("/by\xffte"),
		}},
		{Number: 3, Verb: verbTaken, Key: Key{"id", 3, 0}},
	}
	for _, piece := range []int{1, 3, 4096, 1 << 20} {
		c := newChannel(&piecemeal{piece: piece})
		for _, r := range want {
			if err := c.send(r, nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range want {
			var got request
			if err := c.receive(&got); err != nil || !reflect.DeepEqual(got, r) {
				t.Errorf("piece %d: %+v, %v, want %+v", piece, got, err, r)
			}
		}
		if err := c.receive(&request{}); !errors.Is(err, io.EOF) {
			t.Errorf("piece %d: after the last frame: %v", piece, err)
		}
	}
}

func TestPackedTexts(t *testing.T) {
	t.Parallel()
	for _, list := range []texts{nil, {""}, {"a"}, {"", ""}, {"a", "", "b\xff"}} {
		data, err := json.Marshal(list)
		var got texts
		if err = errors.Join(err, json.Unmarshal(data, &got)); err != nil || !reflect.DeepEqual(got, list) {
			t.Errorf("%q became %q, %v", list, got, err)
		}
	}
	if err := new(texts).UnmarshalText([]byte("bm8gZW5k")); err == nil {
		t.Error("a list without an end is taken")
	}
}

func TestFrameWithoutItsDescriptor(t *testing.T) {
	t.Parallel()
	c := newChannel(&piecemeal{})
	if _, err := c.file(); !errors.Is(err, errFrame) {
		t.Errorf("error %v", err)
	}
	many := &piecemeal{data: make([]byte, 8), piece: 1}
	for range maxWaitingFiles + 1 {
		many.files = append(many.files, os.NewFile(^uintptr(0), ""))
	}
	c = newChannel(many)
	if err := c.receive(&request{}); !errors.Is(err, errFrame) {
		t.Errorf("too many descriptors: %v", err)
	}
}

func FuzzFrames(f *testing.F) {
	frame := func(text string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
	}
	f.Add(frame(`{"number":1,"verb":"hello","hello":{"oldest":1,"newest":2}}`), 3)
	f.Add(frame(`{"number":2,"verb":"start","key":{"id":"a","run":1},"start":{"args":"YQA=","env":"","dir":"Lw=="}}`), 1)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, '{'}, 5)
	f.Add(append(frame(`{}`), frame(`[1]`)...), 100)
	f.Fuzz(func(t *testing.T, data []byte, piece int) {
		c := newChannel(&piecemeal{data: bytes.Clone(data), piece: 1 + (piece&0x7fff_ffff)%100})
		for {
			var r request
			if err := c.receive(&r); err != nil {
				break
			}
			var again request
			echo := newChannel(&piecemeal{piece: 1 << 20})
			if err := errors.Join(echo.send(r, nil), echo.receive(&again)); err != nil || again.Number != r.Number ||
				again.Verb != r.Verb {
				t.Fatalf("%+v became %+v, %v", r, again, err)
			}
		}
		if most := 2*len(data) + 16<<10; c.frame.Cap() > most {
			t.Errorf("%d bytes were kept for %d that came", c.frame.Cap(), len(data))
		}
	})
}
