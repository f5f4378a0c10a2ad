package work

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

func TestProgressIsWrittenOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type write struct {
			done int64
			at   time.Duration
		}
		began := time.Now()
		var writes []write
		f := progressFile{write: func(p statefs.Progress) error {
			writes = append(writes, write{p.Done, time.Since(began)})
			return nil
		}}
		put := func(done int64) { f.put(statefs.Progress{Done: done}, time.Now()) }
		put(1) // written at once
		put(2)
		put(3) // written together with 2, one second after the first write
		<-time.After(5 * time.Second)
		put(4) // written at once again
		put(5)
		f.close() // writes what is pending
		put(6)
		synctest.Wait()
		<-time.After(time.Minute)
		want := []write{{1, 0}, {3, time.Second}, {4, 5 * time.Second}, {5, 5 * time.Second}}
		if len(writes) != len(want) {
			t.Fatalf("writes %v, want %v", writes, want)
		}
		for i := range want {
			if writes[i] != want[i] {
				t.Errorf("write %d is %v, want %v", i, writes[i], want[i])
			}
		}
	})
}

// A handler that writes to its log has a heartbeat every ten seconds, which does not delay progress.
func TestHeartbeatIsWrittenEveryTenSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var writes []time.Duration
		f := progressFile{write: func(p statefs.Progress) error {
			if late := time.Since(p.At); late > time.Second {
				t.Errorf("after %s: a heartbeat that is %s old", time.Since(began), late)
			}
			writes = append(writes, time.Since(began))
			return nil
		}}
		for second := range 30 {
			now := time.Now()
			f.beat(statefs.Progress{At: now}, now)
			synctest.Wait()
			if second == 13 {
				f.put(statefs.Progress{Done: 1, At: now}, now) // in place of the heartbeat that is due at 20 s
				f.put(statefs.Progress{Done: 2, At: now}, now)
			}
			<-time.After(time.Second)
		}
		f.close()
		want := []float64{0, 10, 13, 14, 24, 30}
		if len(writes) != len(want) {
			t.Fatalf("writes after %v, want %v", writes, want)
		}
		for i, at := range want {
			if writes[i].Seconds() != at {
				t.Errorf("write %d after %s, want %v s", i, writes[i], at)
			}
		}
	})
}

func TestParseProgress(t *testing.T) {
	t.Parallel()
	nine := int64(9)
	for _, tc := range []struct {
		line  string
		done  int64
		total *int64
		phase string
		ok    bool
	}{
		{"3 9 reading on", 3, &nine, "reading on", true},
		{"3 9", 3, &nine, "", true},
		{"3", 3, nil, "", true},
		{"3 - unknown length", 3, nil, "unknown length", true},
		{"", 0, nil, "", false},
		{"x 9", 0, nil, "", false},
		{"-1 9", 0, nil, "", false},
		{`{"done": 3, "total": 9, "phase": "reading\non", "at": 1}`, 3, &nine, "reading on", true},
		{`{"done": 3, "total": null}`, 3, nil, "", true},
		{`{"total": 9}`, 0, nil, "", false},
		{`{"done": -1}`, 0, nil, "", false},
		{`{"done": "3"}`, 0, nil, "", false},
		{`{"done": 3`, 0, nil, "", false},
		{"99999999999999999999 1", 0, nil, "", false},
	} {
		found, ok := parseProgress(tc.line)
		done, total, phase := found.done, found.total, found.phase
		if done != tc.done || phase != tc.phase || ok != tc.ok || (total == nil) != (tc.total == nil) ||
			(total != nil && *total != *tc.total) {
			t.Errorf("parseProgress(%q) = %d %v %q %v", tc.line, done, total, phase, ok)
		}
	}
}
