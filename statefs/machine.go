package statefs

import (
	"os"
	"strings"
	"sync"
)

// Machine identifies a machine and one boot of it. Boot is empty if the system does not provide it.
type Machine struct {
	Host string
	Boot string
}

// ThisMachine returns the machine of this process. Boot is the random ID that Linux creates at each
// boot; see random(4).
var ThisMachine = sync.OnceValue(func() Machine {
	var m Machine
	m.Host, _ = os.Hostname() // without a name, Boot still distinguishes machines
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		m.Boot = strings.TrimSpace(string(id))
	}
	return m
})

// RanOn reports whether the last run of the operation began on the given machine in its present
// boot. Otherwise no process of the run can still be alive.
func (r *Record) RanOn(m Machine) bool { return r.Boot == m.Boot && r.Host == m.Host }
