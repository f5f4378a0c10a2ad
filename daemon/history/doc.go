// Package history indexes operations that have ended: lists, counts and the completion feed, at a
// cost that does not grow with the number of operations that ever ran.
//
//	daemon ──an end is durable──▶ Store.Ended ──▶ queue ──▶ writer, one transaction for all that wait
//	                                                            │
//	operations/DAY/ID.json ──rebuild, in the background──▶──────┤
//	                                                            ▼
//	                              history.db   rows      number of the end → row
//	                                           id        ID → number
//	                                           created   time, ID → number        lists walk these two
//	                                           updated   time, ID → number        backwards
//	                                           counts    day, status, job, group, lane, result → how many, bytes, times
//	                                           referred  ID, ID that retries it
//	                                           doomed    ID that is being deleted
//	                                           gone      deleted ID → time until which it is remembered
//	                                           forget    that time, ID
//	                                           tags      tag, ID → number
//	                                           grams     three bytes of text → numbers, by the thousand
//	                                           unread    ID whose record cannot be read: a total is a lower bound then
//	control ◀── List (merged with live operations), Finished (the feed, long poll)
//	              ▲
//	daemon ──each change──▶ LiveIndex: the rows of live operations, in order and counted
//
// # Layers
//
// A file uses only what its own group and the groups below it declare:
//
//	deletion  which operations are deleted, and how  retention.go, delete.go, unanswered.go
//	lists     pages and counts, live ones included   list.go, states.go, liveindex.go, livesnapshot.go
//	store     the one writer, its file, the feed     store.go, build.go, feed.go, file.go, follow.go,
//	                                                 notready.go, deletedids.go
//	index     rows, and what finds them              index.go, row.go, query.go, counters.go, textindex.go
//
// # The records are the authority
//
// history.db is a cache of the records. It may be deleted at any time, no operation waits for it to
// be synced, and it is rebuilt from the records when it cannot be trusted. Only the IDs of deleted
// operations are stored nowhere else; a rebuild loses the ones it cannot read from the old file.
// The index is trusted when it is the very file that was last written, and either belongs to the
// same boot of the machine (the kernel has what a killed daemon wrote) or was closed by a synced
// transaction.
//
// # The journal
//
// While changes are committed by the journal, an index that is complete follows it:
//
//	end, durable in line 812 ──▶ queue, answered from here ──1/s──▶ synced: rows, applied 812
//	                                                                            │
//	checkpoint of the journal, up to line 812 ◀─────────────────────────────────┘
//
// So it is trusted after a power cut, too. Open enters the lines behind applied. It is rebuilt if the journal does not
// have all of them, or ends before. What a caller waits for, such as a deletion, does not wait for its second.
//
// # Numbers
//
// Each end gets the next number of the storage, and so does each stop for a person (failed_manual).
// A number is reserved, written into the record with the end, and published once the record is
// durable and its row is on the way into the index. The feed stops before the first number that is
// neither published nor known to be unused. A consumer that keeps the last number it saw therefore
// misses no end and gets none twice.
//
// # What happens on failure
//
// While the index is being rebuilt, or cannot be written, every query returns ErrNotReady and never
// a wrong result. A damaged file is renamed to history.db.damaged and rebuilt. Ends are still
// accepted then: they wait in memory.
package history
