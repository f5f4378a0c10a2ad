package torture

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// process is a process started by a rig, or a descendant of one.
type process struct {
	pid     int
	command string
}

// processes finds all living processes with the mark of the rig.
func (r *rig) processes() []process {
	entries, err := os.ReadDir("/proc")
	must(r.t, err)
	var found []process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		environ, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		if err != nil || !bytes.Contains(environ, []byte(r.mark+"\x00")) {
			continue // zombies have none
		}
		line, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		found = append(found, process{pid, strings.TrimSpace(string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))})
	}
	return found
}

func (p process) kill() {
	if found, err := os.FindProcess(p.pid); err == nil {
		_ = found.Kill() // it may have ended
	}
}

// commands returns the processes that are neither daemons nor keepers nor wardens, which wait as a shell.
func (r *rig) commands() []process {
	var found []process
	for _, p := range r.processes() {
		if !strings.HasPrefix(p.command, binary(r.t)) && !strings.HasSuffix(p.command, " warden") {
			found = append(found, p)
		}
	}
	return found
}
