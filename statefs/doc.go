// Package statefs holds the names, records and transitions of operations on disk, and is the only code that changes them.
//
// The whole state of jobdir is one directory:
//
//	storage/
//	├── jobs/                       live state, flat; the only folder that is watched for control
//	│   ├── ID.running              the marker: its suffix is the state
//	│   └── ID.pause_requested      a request: somebody asks for something
//	├── operations/2025-11-26/      what is known of each operation, kept after it ends
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
//	├── live.list                   cached list of live IDs
//	├── storage.json                layout version and the next free operation number
//	└── jobdir.lock                 held for life by the one daemon
//
// # Who is the authority
//
// While an operation is live its marker says the state, and the rename of the marker is the transition. When it has ended the
// record says how, and there is no marker. A live operation has exactly one marker.
//
// Two types share the directory. A Tree reads, submits and requests: everybody may have one, in any process. An Owner holds the
// lock, and it alone moves markers, writes records and takes requests. The table of states and causes in transition.go is the
// whole state machine.
//
// # The order of writes
//
// Content before name, name before acknowledgement; the rename of the marker is the transition. A crash can end each of these after any of
// its steps, and Judge tells what was meant. internal/torture starts from what each crash leaves.
//
//	submit (Tree.Submit)
//	  number              a block of them is on the disk before one is used: none is given out twice, also after a power cut
//	  live.list           before the record, so that no record is live and in no list
//	  items of a retry    before the record that says retry_of
//	  record              before the marker: a marker without a record is nobody's
//	  marker, by a link   which cannot overwrite the one of another operation
//	  sync of both        of the folders of the day and of the markers, begun after both names were there; then the answer
//	request (Tree.Request, Owner.Take, Owner.Drop)
//	  file, sync, answer  what exists counts, so asking twice is asking once
//	  rename into taken/  so that it is carried out again after a crash and not seen twice before
//	  effect, sync        durable before it is forgotten: a pause that was acknowledged must not be undone by a power cut
//	  remove, sync        with the next effect: one that came back would undo what was asked later
//	start of a run, failed attempt (Owner.WriteRecord with next, Owner.Move, Owner.Sync)
//	  record              with the new run, or what the attempt came to, and next: the rename says nothing of either
//	  rename              the transition; after a crash before it, next has it made
//	  sync                before the work begins: work that ran is known to have begun
//	pause
//	  stop the work       before the rename: paused means that nothing moves
//	  rename, sync        then the record, behind it: it only repeats what the marker says
//	resume
//	  rename, sync        before the work goes on: work that moves is not called paused
//	end (Owner.WriteEnd, Owner.RemoveMarker)
//	  number of the end   reserved first, so that the feed has no number twice
//	  log, sync           before the record that seals its length
//	  record, sync        the end; from here on it wins over any marker
//	  index, feed         before the marker goes: an operation is always found in one of the two
//	  marker              last and without a sync: one that comes back meets a terminal record
//	deletion (Owner.Delete)
//	  index               out of it first, noted as doomed, so that the rest happens after a crash
//	  rename of ID.json   to ID.deleted, sync: gone as a whole, before its log is
//	  files, ID.deleted   last what says that there is something left to remove
//	record that cannot be read (Owner.QuarantineRecord)
//	  link in corrupt/    it keeps its name until a record takes it: the marker never is without one
//	start of a daemon
//	  lock, watch         what changes from here on is heard of
//	  tmp/, taken/        emptied, and put back to be carried out
//	  list, reconcile     the listing comes after the watch, so nothing falls between the two
//	  sync, serve         what was read may be in memory only, and answers rely on it
//
// # When something fails
//
// A failed sync is a *SyncError and ends the daemon: what is on the disk is unknown until it is read back. A record that cannot
// be understood is a *CorruptError and is moved to corrupt/ with its reason. A name that matches no operation is never touched,
// and links, folders, fifos and devices in jobs/ are counted and never opened.
//
// The package is used on Linux; it builds elsewhere for clients, without the check of process start times and with a rename
// that looks before it moves instead of one that cannot overwrite.
package statefs
