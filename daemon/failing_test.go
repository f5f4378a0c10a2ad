package daemon

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// A repeated failure is logged once per error, its end is logged too, and it is listed while it lasts.
func TestFailingOperationIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	tr := failingOperations{logger: slog.New(slog.NewTextHandler(&said, nil)), byID: make(map[statefs.ID]*failingEntry)}
	id, err := statefs.ParseID("test-wait_2025-11-26_13-07-00_p5_r4")
	must(t, err)
	began := time.Now()
	tr.succeeded(id)
	for i := range 5 {
		tr.failed(id, errors.New("the disk is full"), began.Add(time.Duration(i)*time.Second))
	}
	tr.failed(id, errors.New("the disk is gone"), began.Add(time.Hour))
	list := tr.list()
	if len(list) != 1 || list[0].Tries != 6 || list[0].Error != "the disk is gone" || !list[0].Since.Equal(began) {
		t.Errorf("troubles %+v", list)
	}
	tr.succeeded(id)
	tr.succeeded(id)
	if left := tr.list(); len(left) != 0 {
		t.Errorf("troubles %+v when all is well", left)
	}
	if lines := strings.Count(said.String(), "\n"); lines != 3 || !strings.Contains(said.String(), "reconcile succeeded after failures") {
		t.Errorf("said in %d lines:\n%s", lines, said.String())
	}
}
