// Bench measures jobdir against the physical floor of the same machine in one run, and prints value, floor,
// ratio and target.
//
//	bench ──HTTP, touch──▶ server process ──marker, bytes──▶ bench        the value
//	bench ──the same ────▶ bare process ────the same──────▶ bench        the floor: net/http and system calls, nothing of ours
//
// The server is the program built from this tree; for handlers that it does not have, it is this program,
// started again with cli.Serve and the handlers of server.go. The floor is this program too, started again as
// bare.go. The same observer in the measuring process sees both: a raw inotify watcher, or a client of
// net/http.
//
// The sections are
//
//	a  control: a request is made → the marker has its new name, against an inotify round trip
//	b  polling: the same with a program that looks for requests on a timer
//	c  stream: lines and bytes a second, and the time from an appended line to a waiting client
//	d  memory: of an idle stream and of a paused operation
//	e  idle: processor time of paused operations
//	f  start: from the request that starts an operation to the first byte of its stream
//	h  history: what a million ended operations cost
//	k  commands started and ended through the keeper, and its memory
//	l  load: operations without work, submitted over HTTP and finished, beside the same file operations alone
//	o  outbox: results on their way to S3; it needs versitygw, which make setup-all installs
//	q  queue: the cost of a hundred thousand waiting operations
//	s  requests, and a flood of submits under a small limit of open files; -before PROGRAM measures an earlier program too
//
// Sections l, q and s use an ext4 of their own in a file, through a loop device, if this user may mount one
// and -dir is not given.
//
// The storage is on a real disk unless -dir sets another, because durability is a large part of some times;
// the output names the file system and the durability. A section that fails ends the run with an error, and
// every process and folder of the run is removed, also after a signal. Times depend on other load of the
// machine: the output contains the load average of each section.
//
// Linux only: it reads inotify and /proc.
package main
