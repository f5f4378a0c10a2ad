package work

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/stream"
)

// itemFile is an item file that checks for the item's result file when its line is written.
type itemFile struct {
	line   strings.Builder
	result string
	there  bool
}

func (f *itemFile) Write(line []byte) (int, error) {
	_, err := os.Stat(f.result)
	f.there = err == nil
	return f.line.Write(line)
}

func (*itemFile) Close() error { return nil }

// The result file of an item exists until its line is written: a daemon that is killed before that
// finds it again.
func TestResultOfAnItemStaysUntilItsLineIsWritten(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "op.log")
	s, err := newScratch(log, []byte("{}"), false)
	must(t, err)
	must(t, s.put(itemResultFile(1), []byte(`{"n": 3}`)))
	file, err := os.OpenFile(log, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	must(t, err)
	writer, err := stream.NewWriter(file)
	must(t, err)
	defer func() { must(t, writer.Close()) }()
	lines := &itemFile{result: s.path(itemResultFile(1))}
	r := &Run{task: task{scratch: s}, ctx: t.Context(), log: writer}
	r.pulse.report, r.begunAt = &r.report, time.Now()
	r.progress.write = func(statefs.Progress) error { return nil }
	r.report.items = lines
	w := &items{r: r, op: &Op{r: r}}
	said := w.op.Item(1, 1, "a")
	w.endItem(said, catalog.Item{Name: "a"}, itemResultFile(1), nil, "")
	if !lines.there || !strings.Contains(lines.line.String(), `"n":3`) {
		t.Errorf("the result was there: %t, the line is %q", lines.there, lines.line.String())
	}
	if _, err := os.Stat(lines.result); !os.IsNotExist(err) {
		t.Errorf("the result is left: %v", err)
	}
}
