// Package keeper starts commands, stops and continues them, and ends each one together with everything it has started.
//
// It knows commands, processes and marks; it knows nothing of jobs and states. Whoever calls it decides, the keeper carries out.
// Start makes a command a child of the calling process. A Pool makes it a child of a keeper process (Serve), which outlives the
// caller; both are a Starter.
//
//	daemon ── Pool ──keeper-1.sock──▶ keeper 1 (this build) ──▶ commands, each with its own session
//	             └───keeper-2.sock──▶ keeper 2 (older build) ─▶ its last commands; it gets no new ones
//	                                     └─ nobody connected: timeouts, grace periods and exit reports all the same
//
// A keeper that dies takes the leaders of its commands with it (parent-death signal), and the Pool ends what remains of their trees. So does
// the keeper's Warden, which needs no daemon for it.
//
//	Start ──► running ◄──Continue── stopped           the leader: first process of its own session and group
//	            │    ───Stop──────►   │
//	            │ End: SIGTERM, SIGCONT to the group; SIGKILL to the group after the grace period
//	            ▼                     ▼
//	          the leader has exited
//	            │ the rest of the group: SIGTERM, SIGCONT (unless End has sent them); SIGKILL after the grace period
//	            │ after End, or with ScanOnExit: all processes that carry the marks, in the same way, one by one
//	            ▼
//	          Done: the leader is reaped, the tree is gone; Exit tells how it went
//
// # Who is authority
//
// The kernel. What is alive is asked of it each time: by pidfd for a process, by the pidfd of the leader for its group,
// by /proc for what else belongs to the tree. Nothing is remembered that could grow stale.
//
// # A session of its own
//
// Each command is started with setsid(2). That gives both things that are wanted: a new process group, so that one kill
// reaches all of it, and a new session without a controlling terminal, so that Ctrl-C and the hang-up of the terminal of
// the caller do not reach the command, and a program that wants to ask for a password fails at once instead of waiting.
//
// # What is inherited
//
// Standard input is /dev/null, standard output and standard error are the file Command.Output itself. There is no pipe
// and no copying goroutine: the command can never be blocked by a slow reader, and it goes on writing when the caller
// dies. The environment is Command.Env as it is. All other descriptors are marked close-on-exec at the first Start,
// also those that this process was itself started with. User, limits, umask, cgroup, and signals that this process was
// started to ignore (nohup) are inherited as usual.
//
// # Numbers that are used again
//
// A process number means nothing once its process has been reaped: it may belong to somebody else. The rules here:
//
//   - Before the leader is reaped its number cannot be given away (it is at least a zombie), so neither can the number
//     of its group. Stop, Continue and End signal only in that time, under the lock of the Process.
//   - After that the group is reached through the pidfd of the leader (Linux 6.9 and newer). It refers to the kernel's
//     object, not to the number, so it can only ever reach the same group, and answers ESRCH when that is empty. Where
//     the kernel cannot do this the leader stays a zombie, and so keeps the number, until the group is gone.
//   - All others are held by a pidfd, opened first and compared (start time, group or marks) after it was opened. A
//     process that is alive after the comparison is the one that was compared. Signals go through that pidfd.
//   - This process, its ancestors and process 1 are never held, whatever they carry.
//
// # What happens on failure
//
//   - A command that cannot be started: Start says what is wrong and what to do; nothing is left behind.
//   - A process that may not be signalled (it changed its user): it is left alone, not waited for, and named in Exit.Err.
//   - A process that does not die of SIGKILL (it waits for a dead disk or network file system): Done waits for it.
//   - /proc cannot be read: what could be signalled was signalled, Exit.Err says that the search failed.
//   - This process dies: commands of Start go on, unaffected. EndMarked ends them later. Commands of a Pool go on in the hands of
//     their keeper, and the next Pool finds them there: a start with the same key gets the command that is there.
//   - The keeper dies: Exit.Err is ErrKeeperDied. A connection that breaks while it lives is made again, and requests without an
//     answer are sent again.
//
// # Limits
//
// A process can hide from the search for marks: by replacing its environment (env -i) or overwriting it, by taking
// another user, or by forking faster than it is looked for. Only a cgroup for each command is complete. Linux alone has
// the search; on macOS only the process group is ended.
package keeper
