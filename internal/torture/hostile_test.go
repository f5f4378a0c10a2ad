package torture

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs"
)

// yard is a storage that contains foreign files, placed while no daemon runs.
type yard struct {
	t    *testing.T
	dir  string
	tree *statefs.Tree
	log  *output // the log of the daemon, for tests that read it
}

// submit makes an operation as another program does.
func (y *yard) submit(job string) statefs.ID {
	y.t.Helper()
	rec, err := y.tree.Draft(statefs.Submission{Group: "t", Job: job})
	must(y.t, err)
	must(y.t, y.tree.Publish(rec))
	return rec.ID
}

func (y *yard) jobs(name string) string { return filepath.Join(y.dir, "jobs", name) }

func (y *yard) record(id statefs.ID) string {
	return filepath.Join(y.dir, "operations", id.Day(), id.String()+".json")
}

// foreign is an ID that this storage never issued.
func (y *yard) foreign(pid int) statefs.ID {
	y.t.Helper()
	id, err := statefs.MakeID("other-program", time.Now(), pid, uint64(time.Now().UnixNano())%1e9+1e9)
	must(y.t, err)
	return id
}

func put(name, content string) error { return os.WriteFile(name, []byte(content), 0o640) }

// sparse makes a file of a gigabyte that occupies no space.
func sparse(name string) error { return errors.Join(put(name, ""), os.Truncate(name, 1<<30)) }

// outcome returns nil when the daemon has handled the file as expected; it is called repeatedly until then.
type outcome func() error

func (y *yard) still(name string) outcome {
	return func() error { _, err := os.Lstat(name); return err }
}

func (y *yard) gone(name string) outcome {
	return func() error {
		if _, err := os.Lstat(name); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s is there: %w", filepath.Base(name), err)
		}
		return nil
	}
}

// kept expects a file in corrupt/, with its reason.
func (y *yard) kept(base string) outcome {
	return func() error {
		found, err := filepath.Glob(filepath.Join(y.dir, "corrupt", "*_"+base))
		if err != nil || len(found) != 1 {
			return fmt.Errorf("corrupt/ holds %q for %s, %w", found, base, err)
		}
		reason, err := os.ReadFile(found[0] + ".reason")
		if err != nil || len(reason) < 20 {
			return fmt.Errorf("the reason is %q, %w", reason, err)
		}
		return nil
	}
}

func (y *yard) state(id statefs.ID, want statefs.State) outcome {
	return func() error {
		sight, err := y.tree.ObserveAll(id)
		if err != nil || len(sight.States) != 1 || sight.States[0] != want {
			return fmt.Errorf("its markers are %q, want %s: %w", sight.States, want, err)
		}
		return nil
	}
}

func (y *yard) ended(id statefs.ID, want statefs.State, reason string) outcome {
	return func() error {
		rec, err := y.tree.ReadRecord(id)
		if err != nil || rec.Status != want || !strings.Contains(rec.Reason, reason) {
			return fmt.Errorf("its record says %+v, want %s %s: %w", rec, want, reason, err)
		}
		sight, err := y.tree.ObserveAll(id)
		if err != nil || len(sight.States) > 0 {
			return fmt.Errorf("it has ended and has the markers %q: %w", sight.States, err)
		}
		return nil
	}
}

func all(outcomes ...outcome) outcome {
	return func() error {
		for _, o := range outcomes {
			if err := o(); err != nil {
				return err
			}
		}
		return nil
	}
}

// strangeFiles make names that are no regular files.
var strangeFiles = map[string]func(y *yard, name string) error{
	"fifo":   func(_ *yard, name string) error { return unix.Mkfifo(name, 0o640) },
	"folder": func(_ *yard, name string) error { return os.Mkdir(name, 0o750) },
	"device": func(_ *yard, name string) error {
		return unix.Mknod(name, unix.S_IFCHR|0o640,
			int(unix.Mkdev(1, 5)))
	},
	"link inside":     func(y *yard, name string) error { return os.Symlink(filepath.Join(y.dir, "storage.json"), name) },
	"link outside":    func(_ *yard, name string) error { return os.Symlink("/etc/hostname", name) },
	"link to nothing": func(_ *yard, name string) error { return os.Symlink("nowhere", name) },
	"link to itself":  func(_ *yard, name string) error { return os.Symlink(filepath.Base(name), name) },
	"socket": func(_ *yard, name string) error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		dir, err := os.Open(filepath.Dir(name)) // the path of a socket must be short
		if err != nil {
			return err
		}
		defer func() { _ = dir.Close() }()
		short := fmt.Sprintf("/proc/self/fd/%d/s", dir.Fd())
		if err := unix.Bind(fd, &unix.SockaddrUnix{Name: short}); err != nil {
			return err
		}
		return os.Rename(filepath.Join(filepath.Dir(name), "s"), name)
	},
}

// Only root may make a device; every user can make the other kinds.
func init() {
	if os.Geteuid() != 0 {
		delete(strangeFiles, "device")
	}
}

// damages make unreadable contents of a record.
var damages = map[string]func(name string, good []byte) error{
	"empty":      func(name string, _ []byte) error { return put(name, "") },
	"truncated":  func(name string, good []byte) error { return put(name, string(good[:len(good)/2])) },
	"twice":      func(name string, good []byte) error { return put(name, string(good)+string(good)) },
	"zeroes":     func(name string, good []byte) error { return put(name, strings.Repeat("\x00", len(good))) },
	"a gigabyte": func(name string, _ []byte) error { return sparse(name) },
	"no JSON":    func(name string, _ []byte) error { return put(name, "\xff\xfe{") },
	"no object":  func(name string, _ []byte) error { return put(name, `["version", 1]`) },
	"of another ID": func(name string, good []byte) error {
		return put(name,
			strings.ReplaceAll(string(good), "_r", "_r9"))
	},
	"unknown status": func(name string, good []byte) error {
		return put(name, strings.Replace(string(good), `"queued"`, `"quewed"`, 1))
	},
	"a number for a name": func(name string, good []byte) error {
		return put(name, strings.Replace(string(good), `"job":"sleep"`, `"job":7`, 1))
	},
}

// hostile puts everything into the yard and returns the expected outcomes.
func hostile(y *yard) map[string]outcome {
	cases := make(map[string]outcome)
	for kind, place := range strangeFiles {
		marker := y.jobs(statefs.MarkerName(y.foreign(1), statefs.Running))
		must(y.t, place(y, marker))
		cases[kind+" as a marker is ignored"] = y.still(marker)

		asked := y.submit("sleep")
		must(y.t, place(y, y.jobs(statefs.RequestName(asked, statefs.Cancel))))
		cases[kind+" as a request has no effect"] = y.state(asked, statefs.Running)

		odd := y.submit("sleep")
		must(y.t, errors.Join(os.Remove(y.record(odd)), place(y, y.record(odd))))
		cases[kind+" as a record is kept and waits for a person"] = all(y.kept(odd.String()+".json"),
			y.state(odd, statefs.FailedManual))
	}
	for kind, damage := range damages {
		id := y.submit("sleep")
		good, err := os.ReadFile(y.record(id))
		must(y.t, errors.Join(err, damage(y.record(id), good)))
		cases["record "+kind+" is kept and waits for a person"] = all(y.kept(id.String()+".json"),
			y.state(id, statefs.FailedManual))
	}
	y.records(cases)
	y.markers(cases)
	y.names(cases)
	y.others(cases)
	return cases
}

func (y *yard) records(cases map[string]outcome) {
	newer := y.submit("sleep")
	must(y.t, put(y.record(newer), `{"version":99,"id":"`+newer.String()+`"}`))
	cases["record of a newer version is left alone"] = all(y.still(y.record(newer)), y.state(newer, statefs.Queued))

	lost := y.submit("sleep")
	must(y.t, os.Remove(y.record(lost)))
	cases["marker of ours without a record is kept"] = all(y.kept(statefs.MarkerName(lost, statefs.Queued)),
		y.gone(y.jobs(statefs.MarkerName(lost, statefs.Queued))))

	removed := y.submit("sleep")
	must(y.t, os.Remove(y.jobs(statefs.MarkerName(removed, statefs.Queued))))
	cases["record without a marker is cancelled"] = y.ended(removed, statefs.Cancelled, "marker missing")

	done := y.submit("sleep")
	data, err := os.ReadFile(y.record(done))
	must(y.t, err)
	// otherwise it is pruned immediately
	ended := `"status":"completed","result":"success","finished_at":"` + time.Now().Format(time.RFC3339Nano) + `"`
	must(y.t, put(y.record(done), strings.Replace(string(data), `"status":"queued"`, ended, 1)))
	cases["ended, with a marker: the record wins"] = y.ended(done, statefs.Completed, "")
}

func (y *yard) markers(cases map[string]outcome) {
	two := y.submit("sleep")
	must(y.t, put(y.jobs(statefs.MarkerName(two, statefs.Trailing)), ""))
	cases["of two markers one stays"] = y.state(two, statefs.Running)

	renamed := y.submit("sleep")
	must(y.t, os.Rename(y.jobs(statefs.MarkerName(renamed, statefs.Queued)), y.jobs(renamed.String()+".quewed")))
	cases["marker with a typing mistake is put back"] = y.state(renamed, statefs.Running)

	bare := y.submit("sleep")
	must(y.t, os.Rename(y.jobs(statefs.MarkerName(bare, statefs.Queued)), y.jobs(bare.String())))
	senseless := y.submit("sleep")
	must(y.t, os.Rename(y.jobs(statefs.MarkerName(senseless, statefs.Queued)),
		y.jobs(statefs.MarkerName(senseless, statefs.Scheduled))))
	cases["marker moved to a state that means nothing is put back"] = y.state(senseless, statefs.Running)
	cases["marker without its ending is put back"] = y.state(bare, statefs.Running)

	big := y.submit("sleep")
	must(y.t, sparse(y.jobs(statefs.MarkerName(big, statefs.Queued))))
	cases["marker of a gigabyte is a marker"] = y.state(big, statefs.Running)

	linked := y.submit("sleep")
	must(y.t, os.Link(y.jobs(statefs.MarkerName(linked, statefs.Queued)), filepath.Join(y.dir, "another name")))
	cases["marker with another link is a marker"] = y.state(linked, statefs.Running)

	dead := y.jobs(statefs.MarkerName(y.foreign(1<<22-1), statefs.Running))
	must(y.t, put(dead, ""))
	cases["marker of a program that is gone goes"] = y.gone(dead)

	alive := y.jobs(statefs.MarkerName(y.foreign(os.Getpid()), statefs.Running))
	must(y.t, put(alive, time.Now().Format(statefs.StampFormat)+"\n"))
	cases["marker of a program that lives stays"] = y.still(alive)
}

func (y *yard) names(cases map[string]outcome) {
	for _, name := range []string{
		"line\nbreak.running", "\xff\xfe.running", strings.Repeat("n", 255), ".hidden", " ", "*",
		"..running", "%2e%2e.queued", "nul.running",
	} {
		must(y.t, put(y.jobs(name), ""))
		cases[fmt.Sprintf("name %.20q is ignored", name)] = y.still(y.jobs(name))
	}
	id := y.submit("sleep")
	temporary := y.jobs("." + id.String() + ".json77")
	must(y.t, put(temporary, ""))
	cases["name of a temporary file is ignored"] = all(y.still(temporary), y.state(id, statefs.Running))

	for _, ending := range []string{".queued42", ".json1890320360", ".running.bak", ".failed"} {
		beside := y.submit("sleep")
		must(y.t, put(y.jobs(beside.String()+ending), ""))
		cases["file with the ending "+ending+" beside a marker is kept"] = all(y.kept(beside.String()+ending),
			y.state(beside, statefs.Running))
	}
}

func (y *yard) others(cases map[string]outcome) {
	stray := y.jobs(statefs.RequestName(y.foreign(1<<22-1), statefs.Cancel))
	must(y.t, put(stray, ""))
	old := time.Now().Add(-time.Hour)
	must(y.t, os.Chtimes(stray, old, old))
	cases["request without an operation goes"] = y.gone(stray)

	big := y.submit("sleep")
	must(y.t, sparse(y.jobs(statefs.RequestName(big, statefs.Pause))))
	cases["request of a gigabyte counts by its name"] = y.state(big, statefs.Paused)

	future := y.submit("sleep")
	must(y.t, put(y.jobs(statefs.RequestName(future, statefs.Pause)), "2124-01-01T00:00:00.000000+00:00\n"))
	cases["request of the next century counts now"] = y.state(future, statefs.Paused)

	binary := y.submit("sleep")
	must(y.t, put(y.jobs(statefs.RequestName(binary, statefs.Pause)), "\x00\xff\n{not json"))
	cases["request with nonsense in it counts by its name"] = y.state(binary, statefs.Paused)

	for kind, place := range map[string]func(y *yard, name string) error{
		"fifo":   strangeFiles["fifo"],
		"folder": strangeFiles["folder"],
	} {
		temporary, taken := filepath.Join(y.dir, "tmp", "state-"+kind), filepath.Join(y.dir, "taken", kind)
		must(y.t, errors.Join(place(y, temporary), place(y, taken)))
		cases[kind+" in tmp/ goes"] = y.gone(temporary)
		cases[kind+" in taken/ is kept"] = all(y.gone(taken), y.kept(kind))
	}

	items := y.submit("items")
	must(y.t, put(strings.TrimSuffix(y.record(items), ".json")+".items.ndjson", `{"filename":"1"}`+"\n"+`{"filena`))
	cases["item results with a torn last line are mended"] = y.ended(items, statefs.Completed, "")

	garbled := y.submit("sleep")
	must(y.t, put(strings.TrimSuffix(y.record(garbled), ".json")+".progress", "\x00{{"))
	cases["progress that cannot be read is ignored"] = y.state(garbled, statefs.Running)

	list, err := os.OpenFile(filepath.Join(y.dir, "live.list"), os.O_APPEND|os.O_WRONLY, 0)
	must(y.t, err)
	_, err = list.Write(append(make([]byte, 4096), "+\n-\n+../../etc\nnonsense"...))
	must(y.t, errors.Join(err, list.Close()))
	cases["nonsense in the list of live operations is passed over"] = y.still(filepath.Join(y.dir, "live.list"))
}

// settles waits for the outcome of each file, and checks that the daemon still works.
func (y *yard) settles(d *daemon, cases map[string]outcome) {
	y.t.Helper()
	op, err := d.Submit(y.t.Context(), "t", "quick", nil)
	must(y.t, err)
	_, err = d.Wait(y.t.Context(), op.ID)
	must(y.t, err)
	deadline := time.After(patience)
	for name, found := range cases {
		for err := found(); err != nil; err = found() {
			select {
			case <-time.After(20 * time.Millisecond):
				continue
			case <-deadline:
				y.t.Errorf("%s: %v", name, err)
				deadline = time.After(time.Millisecond)
			}
			break
		}
	}
	if y.t.Failed() {
		y.t.Logf("the daemon said: %s", d.stderr)
	}
}

// TestHostileFiles puts into one storage everything that a person, a program or a broken disk may leave
// there, and starts the real daemon on it. Each file is ignored, kept in corrupt/, or repaired, and none
// stops the daemon.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "storage"))
	tree, err := statefs.Open(r.dir, statefs.Options{Durability: statefs.Process})
	must(t, err)
	defer func() { must(t, tree.Close()) }()
	cases := hostile(&yard{t: t, dir: r.dir, tree: tree})
	d := r.start("--sweep-interval", "1s")
	_, port, err := net.SplitHostPort(strings.TrimPrefix(d.Address(), "http://"))
	if err != nil || port == "" {
		t.Fatal(d.Address())
	}
	(&yard{t: t, dir: r.dir, tree: tree}).settles(d, cases)
	figures.add(t, "hostile files, each ignored, kept or repaired", len(cases))
	d.kill()
}
