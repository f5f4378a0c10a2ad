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

// What fails again and again is said once, with the end of it, and is told while it lasts.
func TestTroubleIsSaidOnce(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	tr := troubles{logger: slog.New(slog.NewTextHandler(&said, nil))}
	id, err := statefs.ParseID("test-wait_2025-11-26_13-07-00_p5_r4")
	must(t, err)
	began := time.Now()
	tr.worked(id)
	for i := range 5 {
		tr.failed(id, errors.New("the disk is full"), began.Add(time.Duration(i)*time.Second))
	}
	tr.failed(id, errors.New("the disk is gone"), began.Add(time.Hour))
	list := tr.list()
	if len(list) != 1 || list[0].Tries != 6 || list[0].Error != "the disk is gone" || !list[0].Since.Equal(began) {
		t.Errorf("troubles %+v", list)
	}
	tr.worked(id)
	tr.worked(id)
	if left := tr.list(); len(left) != 0 {
		t.Errorf("troubles %+v when all is well", left)
	}
	if lines := strings.Count(said.String(), "\n"); lines != 3 || !strings.Contains(said.String(), "look works again") {
		t.Errorf("said in %d lines:\n%s", lines, said.String())
	}
}
