// Package live is the table of the operations that a daemon manages: what is known of each, as one
// immutable snapshot behind one lock.
//
//	submit ─▶ Announce, Withdraw ────────────┐
//	commit ─▶ Add, Put, Commit, End, Remove ─┴▶ Table ─┬─▶ snapshot by ID
//	                                                   ├─▶ rows, for lists
//	                                                   ├─▶ counts by lane and state
//	                                                   ├─▶ parents ─▶ the children that wait for them
//	                                                   └─▶ subscribers, in the order of the changes: the queue
//
// The rows, the counts, the children and the subscribers follow each change under the lock of the
// table, so they are always of the same operations. A change of Commit or Remove also has the record,
// all of it durable, and what of it is new. The package works in memory only: no files, clock or goroutines.
package live
