// Package keeper starts commands, stops and continues them, and ends each one together with its
// descendants.
//
// It knows commands, processes and marks; it knows nothing of jobs and states. The caller decides
// what runs; the keeper carries it out. Start makes a command a child of the calling process. A
// Pool makes it a child of a keeper process (Main), which outlives the caller.
//
//	daemon ── Pool ──keeper-1.sock──▶ keeper 1 (this build) ──▶ commands, each with its own session
//	             └───keeper-2.sock──▶ keeper 2 (older build) ─▶ its last commands; it gets no new ones
//	                                     └─ without a daemon too: timeouts, grace periods, exit reports
//
// When a keeper dies, the kernel kills the leaders of its commands (parent-death signal) and the
// Pool ends the rest of their trees. The keeper's Warden does the same when no daemon runs.
//
//	Start ──► running ◄──Continue── stopped           the leader: first process of its own session and group
//	            │    ───Stop──────►   │
//	            │ End: SIGTERM, SIGCONT to the group; SIGKILL to the group after the grace period
//	            ▼                     ▼
//	          the leader has exited
//	            │ the rest of the group: SIGTERM, SIGCONT (unless End has sent them); SIGKILL after the grace period
//	            │ after End, or with ScanOnExit: all processes that carry the marks, in the same way, one by one
//	            ▼
//	          Done: the leader is reaped, the tree is gone; Exit returns how it ended
//
// # Layers
//
// A file uses only what its own group and the groups below it declare:
//
//	pool      the daemon's side of keepers     pool.go, link.go, remote.go, cleanup.go
//	keeper    the keeper process, its warden   main.go, serve.go, client.go, supervised.go, warden.go
//	protocol  what both send, where they meet  message.go, frame.go, socket.go, number.go, options.go
//	commands  starts a command, ends its tree  starter.go, start.go, command.go, process.go, exit.go,
//	                                           timelimit.go, sweep.go, markscan.go, cgroup.go
//	kernel    processes by pidfd and /proc     leader.go, children.go, pidfd.go, proc.go
//
// # The kernel is the only authority
//
// Every decision asks the kernel what is alive: a pidfd for a process, the leader's pidfd for its
// group, /proc for the rest of the tree. No cached answer can go stale: the search for marks remembers
// when a process started and which marks its program was given, and asks in each pass whether that is
// still the process (the inode of its entry in /proc) and the program (the addresses of its stack and
// its environment).
//
// # A session of its own
//
// Each command is started with setsid(2). That creates a new process group, so that one kill
// reaches all of it. It also creates a new session without a controlling terminal: Ctrl-C and the
// hang-up of the caller's terminal do not reach the command, and a program that prompts for a
// password fails at once instead of waiting.
//
// # What is inherited
//
// Standard input is /dev/null; standard output and standard error are the file Command.Output
// itself. There is no pipe and no copying goroutine: a slow reader can never block the command, and
// it goes on writing when the caller dies. The environment is exactly Command.Env. The first Start
// marks all other descriptors close-on-exec, including descriptors that this process inherited.
// User, limits, umask, cgroup, and signals that this process was started to ignore (nohup) are
// inherited as usual.
//
// # Reuse of PIDs
//
// A PID means nothing once its process has been reaped: the kernel may give it to another process.
// The rules here:
//
//   - Before the leader is reaped, neither its PID nor the number of its group can be reused (it is at least a zombie).
//     Stop, Continue and End signal only in that time, under the lock of the Process.
//   - After that the group is reached through the leader's pidfd (Linux 6.9 and newer). It refers to the kernel's
//     object, not to the number, so it can only reach the same group, and answers ESRCH when that is empty. Where
//     the kernel does not support this, the leader stays a zombie, and so keeps the number, until the group is gone.
//   - Every other process is held by a pidfd, which is opened first and compared afterwards (start time, group or
//     marks). A process that is alive after the comparison is the compared one. Signals go through the pidfd.
//   - This process, its ancestors and process 1 are never held, whatever marks they carry.
//
// # What happens on failure
//
//   - A command cannot be started: the error of Start names the cause and the remedy; no process or file remains.
//   - A process may not be signalled (it changed its user): it is left alone, not waited for, and named in Exit.Err.
//   - A process does not die of SIGKILL (it waits for a dead disk or network file system): Done waits for it.
//   - /proc cannot be read: what could be signalled was signalled; Exit.Err reports that the search failed.
//   - This process dies: commands of Start go on, unaffected; EndMarked ends them later. Commands of a Pool go on under
//     their keeper, and the next Pool finds them there: a start with the same key returns the existing command.
//   - The keeper is stopped (SIGSTOP): a start whose ctx ends is withdrawn; other requests wait. Open waits for the
//     keeper in the background; see Settled.
//   - The keeper dies: Exit.Err is ErrKeeperDied. When only the connection breaks, it is made again, and unanswered
//     requests are sent again.
//
// # Limits
//
// A process can hide from the search for marks: by replacing its environment (env -i) or
// overwriting it, by changing its user, or by forking faster than the search. Only a cgroup for
// each command is complete.
package keeper
