//go:build linux

package keeper

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	tail := " S 7 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 100 200 300" + strings.Repeat(" 1", 25) + " 4242 0\n"
	for name, program := range map[string]string{
		"plain": "sh", "spaces": "a b", "parentheses": "a) R 1 (b",
		"newline": "a\nb",
	} {
		s, err := parseStat([]byte("12 (" + program + ")" + tail))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if want := (stat{
			state: 'S', parent: 7, group: 12, session: 12, flags: 4194560, start: 98765,
			image: image{1, 1, 4242},
		}); s != want {
			t.Errorf("%s: %+v, want %+v", name, s, want)
		}
	}
	for _, bad := range []string{"", "12 sh S 1", "12 (sh) S 1 2", "12 (sh)" + strings.Replace(tail, "7", "x", 1)} {
		if s, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q is read as %+v", bad, s)
		}
	}
}

func TestReadStatOfThisProcess(t *testing.T) {
	t.Parallel()
	s, err := readStat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	tick, err := now()
	if err != nil {
		t.Fatal(err)
	}
	if s.parent != os.Getppid() || s.kernel() || s.zombie() || !s.image.known() || s.start == 0 || s.start > tick {
		t.Errorf("%+v at %d", s, tick)
	}
}

func TestCarries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		environ string
		marks   []string
		want    bool
	}{
		"all":          {"P=1\x00A=1\x00B=2\x00", []string{"A=1", "B=2"}, true},
		"first":        {"A=1\x00", []string{"A=1"}, true},
		"twice":        {"A=0\x00A=1\x00", []string{"A=1"}, true},
		"one of two":   {"A=1\x00", []string{"A=1", "B=2"}, false},
		"longer":       {"A=11\x00", []string{"A=1"}, false},
		"longer name":  {"XA=1\x00", []string{"A=1"}, false},
		"in a value":   {"X=A=1\x00", []string{"A=1"}, false},
		"no marks":     {"A=1\x00", nil, false},
		"nothing":      {"", []string{"A=1"}, false},
		"not finished": {"B=2\x00A=1", []string{"A=1"}, true},
	} {
		if got := hasMarks([]byte(c.environ), c.marks); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A process keeps what the table knows of it; another process with its PID does not.
func TestProcessTable(t *testing.T) {
	t.Parallel()
	var table processTable
	find := func(pid int) *processRow {
		t.Helper()
		if err := table.list(); err != nil {
			t.Fatal(err)
		}
		for i := range table.rows {
			if table.rows[i].pid == pid {
				return &table.rows[i]
			}
		}
		return nil
	}
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	find(pid).start = 42
	for range 3 {
		if row := find(pid); row == nil || row.start != 42 {
			t.Fatalf("the row of a process that lives on is %+v", row)
		}
	}
	if find(os.Getpid()) == nil || find(1) == nil {
		t.Error("processes are missing in the list")
	}
	inode := find(pid).inode
	_ = cmd.Process.Kill() // the test ends it
	_ = cmd.Wait()
	if row := find(pid); row != nil && row.start != 0 {
		t.Errorf("a process that has ended is still known: %+v", row)
	}
	again := reusePID(t, pid)
	row := find(pid)
	again()
	if row == nil || row.start != 0 || row.inode == inode {
		t.Errorf("the row of a process with a reused PID is %+v, the inode was %d", row, inode)
	}
}

// reusePID starts a process with a PID that was just freed, and returns a function that ends it.
func reusePID(t *testing.T, pid int) (end func()) {
	t.Helper()
	for range 100 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0); err != nil {
			t.Skipf("the next PID cannot be chosen here; it can be as root, with CONFIG_CHECKPOINT_RESTORE in the kernel: %v", err)
		}
		cmd := exec.CommandContext(t.Context(), "sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		end = func() {
			_ = cmd.Process.Kill() // the test ends it
			_ = cmd.Wait()
		}
		if cmd.Process.Pid == pid {
			return end
		}
		end()
	}
	t.Skip("other programs started a process each time: run the test on a machine with less to do")
	return nil
}
