//go:build linux

package keeper

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func TestExit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args   []string
		code   int
		signal string
	}{
		"success":     {nil, 0, ""},
		"code":        {[]string{"-exit", "77"}, 77, ""},
		"SIGKILL":     {[]string{"-signal", "9"}, -1, "SIGKILL"},
		"SIGTERM":     {[]string{"-signal", "15"}, -1, "SIGTERM"},
		"SIGHUP":      {[]string{"-signal", "1"}, -1, "SIGHUP"},
		"after lines": {[]string{"-lines", "3", "-exit", "2"}, 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := wait(t, newJob(t, c.args...).start(t))
			if e.Signal != c.signal || e.Code != c.code || e.Err != nil || e.Cause != "" {
				t.Errorf("exit is %+v, want code %d, signal %q", e, c.code, c.signal)
			}
			if e.UserSeconds+e.SystemSeconds <= 0 || e.PeakMemory <= 1<<20 || e.At.IsZero() {
				t.Errorf("usage is missing: %+v", e)
			}
		})
	}
}

func TestStartRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := write("plain", "hello", 0o644)
	lost := write("lost", "#!/no/such/interpreter\n", 0o755)
	garbage := write("garbage", "\x01\x02\x03", 0o755)
	long := strings.Repeat("x", 128<<10)
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(here, filepath.Dir(fakejob))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Command)
		want   string
	}{
		"nothing":         {func(c *Command) { c.Args = nil }, "no program is given"},
		"missing in PATH": {func(c *Command) { c.Args = []string{"no-such-program"} }, "not in PATH"},
		"missing path":    {func(c *Command) { c.Args = []string{dir + "/none"} }, "there is no program"},
		"not executable":  {func(c *Command) { c.Args = []string{plain} }, "chmod +x"},
		"same in PATH":    {func(c *Command) { c.Args = []string{"plain"}; c.Env[0] = "PATH=" + dir }, "chmod +x"},
		"directory":       {func(c *Command) { c.Args = []string{dir} }, "is a directory"},
		"no PATH":         {func(c *Command) { c.Args = []string{"true"}; c.Env = c.Env[1:] }, "has no PATH"},
		"relative PATH": {
			func(c *Command) { c.Args = []string{"fakejob"}; c.Env[0] = "PATH=" + relative },
			"found through the relative entry",
		},
		"interpreter":     {func(c *Command) { c.Args = []string{lost} }, "interpreter"},
		"not a program":   {func(c *Command) { c.Args = []string{garbage} }, "not a program for this machine"},
		"missing dir":     {func(c *Command) { c.Dir = dir + "/none" }, "working directory"},
		"dir is a file":   {func(c *Command) { c.Dir = plain }, "not a directory"},
		"NUL in argument": {func(c *Command) { c.Args = []string{"true", "a", "b\x00c"} }, "argument 2: contains a NUL byte"},
		"long argument":   {func(c *Command) { c.Args = []string{"true", long} }, "argument 1: has 131072 bytes"},
		"NUL in variable": {func(c *Command) { c.Env = append(c.Env, "A=\x00") }, "variable A: contains a NUL byte"},
		"long variable":   {func(c *Command) { c.Env = append(c.Env, "A="+long) }, "variable A: has 131074 bytes"},
		"no name":         {func(c *Command) { c.Env = append(c.Env, "=x") }, "not NAME=value"},
		"too much in all": {func(c *Command) { c.Args = tooMany(long) }, "together are too long"},
		"mark not in Env": {func(c *Command) { c.Mark = []string{"OTHER=1"} }, "is not in the environment"},
		"no output":       {func(c *Command) { c.Output = nil }, "no output file"},
		"not in append":   {func(c *Command) { c.Output = os.Stdin }, "O_APPEND"},
		"negative grace":  {func(c *Command) { c.Grace = -1 }, "negative"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t)
			c.change(&j.Command)
			_, err := Start(j.Command)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want one with %q", err, c.want)
			}
		})
	}
}

// tooMany returns arguments above the 6 MiB that are possible under any stack limit.
func tooMany(long string) []string {
	args := []string{"/bin/true"}
	for range 64 {
		args = append(args, long[1:])
	}
	return args
}

func TestLongestArgument(t *testing.T) {
	t.Parallel()
	j := newJob(t)
	j.Args = []string{"/bin/true", strings.Repeat("x", 128<<10-1)}
	if e := wait(t, j.start(t)); e.Code != 0 {
		t.Errorf("exit is %+v", e)
	}
}

func TestSurroundings(t *testing.T) {
	t.Parallel()
	j := newJob(t, "-stdin", "-env", "HOME", "-env", "GREETING")
	j.Env = append(j.Env, "GREETING=hello $HOME")
	wait(t, j.start(t))
	if got, want := j.output(t), "HOME unset\nGREETING=hello $HOME\nstdin 0 bytes\n"; got != want {
		t.Errorf("output is %q, want %q", got, want)
	}
}

//nolint:paralleltest // commands started during a mount in another test inherit /dev/fuse
func TestNothingElseIsInherited(t *testing.T) {
	fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0) // not close-on-exec, as if this process was started with it
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	setCloseOnExec(fd)
	j := newJob(t)
	j.Args = []string{"ls", "/proc/self/fd"}
	p := j.start(t)
	wait(t, p)
	// 3 is the folder that ls reads.
	if got := strings.Fields(j.output(t)); strings.Join(got, " ") != "0 1 2 3" {
		t.Errorf("open descriptors are %v", got)
	}
}

func TestSessionOfItsOwn(t *testing.T) {
	t.Parallel()
	ready := newFIFO(t)
	p := newJob(t, "-tell", ready.path, "-hang").start(t)
	if pid := ready.pid(t); pid != p.PID() {
		t.Errorf("the child is %d, PID says %d", pid, p.PID())
	}
	session, err := unix.Getsid(p.PID())
	if err != nil {
		t.Fatal(err)
	}
	group, err := unix.Getpgid(p.PID())
	if err != nil {
		t.Fatal(err)
	}
	if session != p.PID() || group != p.PID() {
		t.Errorf("session %d, group %d of process %d", session, group, p.PID())
	}
	p.End("test")
	wait(t, p)
}

func TestOutputInOrder(t *testing.T) {
	t.Parallel()
	j := newJob(t, "-lines", "100", "-stderr", "-bytes", "1000")
	fmt.Fprintln(j.Output, "before")
	wait(t, j.start(t))
	fmt.Fprintln(j.Output, "after")
	var want strings.Builder
	want.WriteString("before\n")
	for i := range 100 {
		fmt.Fprintln(&want, "line", i+1)
	}
	for n := 1000; n > 0; n -= 64 {
		want.WriteString(strings.Repeat("x", min(n, 64)-1) + "\n")
	}
	want.WriteString("after\n")
	if got := j.output(t); got != want.String() {
		t.Errorf("output is %q", got)
	}
}

func TestOutputIsTheCallers(t *testing.T) {
	t.Parallel()
	ready, gate := newFIFO(t), newFIFO(t)
	j := newJob(t, "-tell", ready.path, "-until", gate.path)
	p := j.start(t)
	ready.pid(t)
	if err := j.Output.Close(); err != nil {
		t.Fatal(err)
	}
	gate.release(t)
	if e := wait(t, p); e.Code != 0 {
		t.Errorf("exit is %+v", e)
	}
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	const n = 200
	j := newJob(t)
	j.Args = []string{"/bin/sh", "-c", "echo $$"}
	var wg sync.WaitGroup
	for range n {
		p := j.start(t)
		wg.Go(func() {
			if e := p.Exit(); e.Code != 0 || e.Err != nil {
				t.Errorf("exit is %+v", e)
			}
		})
	}
	wg.Wait()
	if lines := strings.Count(j.output(t), "\n"); lines != n {
		t.Errorf("%d lines, want %d", lines, n)
	}
}
