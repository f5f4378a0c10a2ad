// Package statefs holds the names, records and transitions of operations on disk, and is the only code that changes
// them.
//
// The whole state of jobdir is one directory:
//
//	storage/
//	├── jobs/                       live state, flat; the only folder that is watched for control
//	│   ├── ID.running              the marker: its suffix is the state
//	│   └── ID.pause_requested      a request: pause this operation
//	├── operations/2025-11-26/      everything about each operation; kept after its end
//	│   ├── ID.json                 the record
//	│   ├── ID.progress             progress, at most once a second, may be lost
//	│   ├── ID.log                  the log, append only
//	│   ├── ID.items.ndjson         one line for each item
//	│   └── ID.artifacts/           files that the work leaves
//	├── lanes/cookie.paused         control of a lane: paused, closed, capacity
//	├── definitions/HASH.yaml       the job definition an operation was submitted under
//	├── taken/                      requests that are being carried out
//	├── corrupt/                    what could not be read, each with a reason; never deleted
//	├── tmp/                        temporary files, never watched, emptied at start
//	├── journal/                    changes that the files may lack, see package journal; if commit is journal
//	├── live.list                   cached list of live IDs
//	├── records.list                copies of the records of operations that wait
//	├── storage.json                layout version and the next free operation number
//	└── jobdir.lock                 held for life by the one daemon
//
// # Layers
//
// A file uses only what its own group and the groups below it declare:
//
//	owner    what only the daemon may do        owner.go, replay.go, taken.go, batch.go, sweep.go,
//	                                            verdict.go
//	tree     what every process may do          tree.go, publish.go, request.go, status.go
//	files    the other folders and files        lane.go, schedulefile.go, outbox.go, inbox.go, keys.go,
//	                                            livelist.go, sequence.go
//	folders  jobs/ and operations/              observation.go, history.go, output.go, exit.go
//	storage  the directory, corrupt/, the lock  storage.go, commits.go, corrupt.go,
//	                                            lock.go
//	words    names, states, actions, records    transition.go, action.go, name.go, record.go
//
// # Which file is authoritative
//
// While an operation is live, its marker holds the state, and renaming the marker is the
// transition. A live operation has exactly one marker. A finished operation has none; its record
// holds the outcome.
//
// Two types share the directory. A Tree reads, submits and requests; any process may open one. An
// Owner holds the lock. Only the Owner moves markers, writes records and takes requests. The table
// of states and causes in transition.go is the whole state machine.
//
// # The order of writes
//
// Content before name, name before acknowledgement; the rename of the marker is the transition. A
// crash can end each of these sequences after any step, and Interpret decides how to continue.
// internal/torture starts a daemon on what each possible crash leaves.
//
// By default (CommitJournal) a change is a line of the journal first (package commit), and the record file follows; the
// marker is moved once the line is durable, and nothing is answered before. A start brings the files up to the journal
// (OwnerJournal) before it interprets them. An operation that may begin at once starts with its submit: one line, and a
// marker that says running. With CommitFiles the files are written and synced in this order.
//
//	submit (Tree.Publish)
//	  number              a block is on disk before its first number is used: a power cut repeats no number
//	  items of a retry    before the record that has retry_of
//	  record              before the marker: a marker without a record belongs to no operation
//	  marker, by a link   which cannot overwrite the marker of another operation
//	  sync of both        the folder of the day and jobs/; begins after both names exist
//	  live.list           after the sync: a start cancels listed operations without a marker, but no interrupted submit
//	  answer              a record that lost its marker before this line is in no list and has no effect
//	request (Tree.Request, Requests.Take, Requests.Drop)
//	  file, sync, answer  a request is the existence of its file, so a repeated request has no further effect
//	  rename into taken/  a restart carries it out again, and it cannot be seen a second time in jobs/
//	  effect, sync        durable before the request is removed: a power cut must not undo an acknowledged pause
//	  remove, sync        with the next effect: a request that came back would undo a later one
//	start of a run, failed attempt (Owner.WriteRecord with next, Owner.Move, Owner.Sync)
//	  record              with the new run, or the outcome of the attempt, and next: the rename carries neither
//	  rename              the transition; after a crash before it, next causes the rename
//	  sync                before the work begins: work that ran is known to have started
//	pause
//	  stop the work       before the rename: a paused operation does no work
//	  rename, sync        then the record: it only repeats the marker
//	resume
//	  rename, sync        before the work continues: running work is never marked paused
//	end (Owner.WriteEnd, Owner.RemoveMarker)
//	  number of the end   reserved first, so that no number appears twice in the feed
//	  log, sync           before the record that seals its length
//	  record, sync        the end; from now on it wins over any marker
//	  index, feed         before the marker is removed: an operation is always in one of the two
//	  marker              last and without a sync: if it comes back, the record is terminal
//	deletion (Owner.Delete)
//	  index               removed first and noted as doomed, so that a restart finishes the deletion
//	  rename of ID.json   to ID.deleted, sync: the operation disappears as a whole, before its log does
//	  files, ID.deleted   ID.deleted last: it shows that files are left to remove
//	record that cannot be read (Owner.QuarantineRecord)
//	  link in corrupt/    the record keeps its name until a new record replaces it: a marker always has a record
//	start of a daemon
//	  lock, watch         every later change is noticed
//	  tmp/, taken/        tmp/ is emptied; requests in taken/ are put back
//	  list, reconcile     after the watch began, so that no change is missed
//	  sync, serve         the state that was read may exist in memory only, and answers rely on it
//
// # When something fails
//
// A failed sync is a *files.SyncError and ends the daemon: the content of the disk is unknown until it is
// read back. A record that cannot be decoded is a *CorruptError and goes to corrupt/ with the
// reason. A name that matches no operation is never touched. Links, folders, fifos and devices in
// jobs/ are counted and never opened.
//
// The package is for Linux. It also builds for clients on other systems, without the check of
// process start times, and with a rename that checks the target first, because no rename there refuses
// to overwrite.
package statefs
