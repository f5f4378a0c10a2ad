package control

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// Schedules are listed, and switched off and on by endpoints that create and remove a file.
func TestSchedules(t *testing.T) {
	t.Parallel()
	r := setup(t)
	file := filepath.Join(r.tree.Dir(), "schedules", "media-nightly.disabled")
	list := func() map[string]any {
		t.Helper()
		a := r.get("/api/v1/schedules")
		all, _ := a.json(t)["schedules"].([]any)
		if a.status != http.StatusOK || len(all) != 1 || a.json(t)["count"] != 1.0 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		one, _ := all[0].(map[string]any)
		return one
	}
	if one := list(); one["job"] != "media/nightly" || one["enabled"] != true {
		t.Errorf("%v", one)
	}
	for range 2 {
		if a := r.do("POST", "/api/v1/schedules/media/nightly/disable", ""); a.status != http.StatusOK ||
			a.json(t)["enabled"] != false {
			t.Errorf("%d %s", a.status, a.body)
		}
		if _, err := os.Stat(file); err != nil || list()["enabled"] != false {
			t.Errorf("switched off: %v", err)
		}
	}
	if a := r.do("POST", "/api/v1/schedules/media/nightly/enable", ""); a.status != http.StatusOK ||
		a.json(t)["enabled"] != true {
		t.Errorf("%d %s", a.status, a.body)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("switched on, and there is %s: %v", file, err)
	}
	r.problem(r.do("POST", "/api/v1/schedules/media/decode/enable", ""), http.StatusConflict,
		"Job 'media/decode' has no schedule")
	r.problem(r.do("POST", "/api/v1/schedules/media/nothing/enable", ""), http.StatusNotFound, "There is no job nothing")
	r.problem(r.do("POST", "/api/v1/schedules/media/nightly/start", ""), http.StatusNotFound, "")
	r.problem(r.do("GET", "/api/v1/schedules/media/nightly/enable", ""), http.StatusMethodNotAllowed, "")
	r.problem(r.get("/api/v1/schedules?job=x"), http.StatusBadRequest, "job")
}
