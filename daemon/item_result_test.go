package daemon

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
	writer, err := stream.NewWriter(file, stream.WriterOptions{})
	must(t, err)
	defer func() { must(t, writer.Close()) }()
	items := &itemFile{result: s.path(itemResultFile(1))}
	r := &run{ctx: t.Context(), log: writer, scratch: s, begunAt: time.Now()}
	r.progress.write = func(statefs.Progress) error { return nil }
	r.report.items = items
	said := (&Op{r}).Item(1, 1, "a")
	r.endItem(said, catalog.Item{Name: "a"}, itemResultFile(1), nil, "")
	if !items.there || !strings.Contains(items.line.String(), `"n":3`) {
		t.Errorf("the result was there: %t, the line is %q", items.there, items.line.String())
	}
	if _, err := os.Stat(items.result); !os.IsNotExist(err) {
		t.Errorf("the result is left: %v", err)
	}
}
