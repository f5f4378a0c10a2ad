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
// Content before name, name before acknowledgement. Submit writes the record, then the marker, then syncs both folders, then
// answers. A transition renames the marker, syncs, and then acts; only a pause stops the work first. An end syncs the log,
// writes the terminal record, syncs, and removes the marker last. So whatever a crash leaves, Judge can tell what was meant.
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
