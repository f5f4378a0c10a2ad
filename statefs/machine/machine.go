// Package machine tells what this machine and its processes are doing: which boot this is, whether a process of an ID
// still runs, who holds a lock, how many files may still be opened. It knows nothing of operations and changes nothing.
// On other systems than Linux most answers are "unknown".
package machine

import (
	"os"
	"strings"
	"sync"
)

// PID is the ID of this process. [os.Getpid] is a system call each time.
var PID = os.Getpid()

// Machine identifies a machine and one boot of it. Boot is empty if the system does not provide it.
type Machine struct {
	Host string
	Boot string
}

// This returns the machine of this process. Boot is the random ID that Linux creates at each boot;
// see random(4).
var This = sync.OnceValue(func() Machine {
	var m Machine
	m.Host, _ = os.Hostname() // without a name, Boot still distinguishes machines
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		m.Boot = strings.TrimSpace(string(id))
	}
	return m
})
