// Package commit makes changes of operations durable in the journal, and brings the files that people see up to them.
//
//	Append ──▶ journal ──▶ durable: Wait returns
//	   │                      ├──▶ the caller moves the marker, and says so: Seen
//	   └──▶ what Read returns └──▶ the record file, at most Options.Delay later
//	                                      │
//	                     both up to a number, and synced ──▶ checkpoint
//
// A line of the journal is the whole record after a change, as its file will have it; its member "lsn" is the number of
// the line. So replaying needs nothing but the last line of each operation. Until a checkpoint covers a line, the
// journal is the authority, and the files are behind it; after that the files have it too.
//
// Judge is what a start decides about a marker after a crash.
package commit
