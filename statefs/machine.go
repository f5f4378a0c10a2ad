package statefs

import (
	"os"
	"strings"
	"sync"
)

// Machine tells on which machine, and since which start of it, this process runs. Boot is empty where the system does not tell.
type Machine struct {
	Host string
	Boot string
}

// ThisMachine returns the machine of this process. The boot is what Linux draws anew at each start, random(4).
var ThisMachine = sync.OnceValue(func() Machine {
	var m Machine
	m.Host, _ = os.Hostname() // without a name the boot still tells machines apart
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		m.Boot = strings.TrimSpace(string(id))
	}
	return m
})

// Here reports whether the last run of the operation began on the given machine, in its present boot: only then can anything of it
// still be alive.
func (r *Record) Here(m Machine) bool { return r.Boot == m.Boot && r.Host == m.Host }
