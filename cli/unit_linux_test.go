package cli_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The systemd unit starts the daemon in a way that it understands, and a stop of it ends the daemon alone.
func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../contrib/jobdir.service")
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			settings[name] = value
		}
	}
	if settings["KillMode"] != "process" {
		t.Errorf("KillMode is %q: a stop would end the commands", settings["KillMode"])
	}
	if settings["StateDirectory"] == "" {
		t.Error("there is no storage directory")
	}
	args := strings.Fields(settings["ExecStart"])
	if len(args) < 2 || args[1] != "serve" {
		t.Fatalf("ExecStart is %q", settings["ExecStart"])
	}
	// With a listener that cannot be, serve reads all of its flags and ends before it makes anything.
	cmd := exec.CommandContext(t.Context(), "jobdir", append(args[1:], "--storage", t.TempDir(), "--listen", "nowhere")...)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err == nil || !strings.Contains(said.String(), "nowhere") || strings.Contains(said.String(), "unknown flag") {
		t.Errorf("%v says %s", err, said.String())
	}
	if path, err := exec.LookPath("systemd-analyze"); err == nil {
		out, err := exec.CommandContext(t.Context(), path, "verify", "--man=no", "../contrib/jobdir.service").CombinedOutput()
		if err != nil && !bytes.Contains(out, []byte("is not executable")) && !bytes.Contains(out, []byte("jobdir: No such file")) {
			t.Errorf("systemd-analyze: %v\n%s", err, out)
		}
	}
}
