// Package history answers what has ended: lists, counts and the completion feed, at a cost that does not grow with the number of
// operations that ever ran.
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
//	                                           unread    ID whose record cannot be read: a total is a lower bound then
//	control ◀── List (merged with what is live), Finished (the feed, long poll)
//	              ▲
//	daemon ──each change──▶ Living: the rows of what lives, in order and counted
//
// # Who is the authority
//
// The records. history.db is a cache of them: it may be deleted at any time, is never synced on the way of an operation, and is
// read from the records again when it cannot be trusted. It is trusted when it is the very file that was last written, and either
// in the same boot of the machine (the kernel has what a killed daemon wrote) or closed by a synced transaction that says so.
//
// # Numbers
//
// Each end gets the next number of the storage, and so does each stop for a person (failed_manual). A number is reserved, written
// into the record with the end, and published once the record is durable; the feed goes only as far as every lower number is
// published or known to be unused. So who keeps the last number it saw misses nothing and gets nothing twice.
//
// # What happens on failure
//
// While the index is being rebuilt, or cannot be written, every question is answered with ErrNotReady and never with a wrong
// number. A damaged file is set aside as history.db.damaged and made again. Ends are accepted meanwhile: they wait in memory.
package history
