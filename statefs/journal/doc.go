// Package journal is the log that a storage commits to: numbered lines in preallocated files, many lines to one write.
//
//	storage/journal/
//	├── 000000000007.journal    a closed segment; kept until a checkpoint
//	├── 000000000008.journal    the current segment: frames are added at its end
//	└── 000000000009.journal    the spare segment, full of zeros or of old frames
//
// A segment starts with a header of 4 KiB, one line of text and zeros. Frames follow without gaps. A frame is what one
// write made durable: a line of fixed width that starts with "#F ", and one line for each entry. An entry is a line of
// text without a line end, usually JSON; what it means is the business of the caller. Entries are numbered 1, 2, 3, ...
// through all segments, and so are frames.
//
//	Append ──▶ pending frames ──▶ Run: one write at a time, synced ──▶ the calls of Wait return
//	Checkpoint ──▶ a frame with its number ──▶ segments of older entries are used again
//
// # What a crash leaves
//
// A frame is read whole or not at all. Its checksum covers the number of its segment, its header and its lines, so old
// frames in a segment that is used again do not count. Only one write is under way at a time. So a crash leaves at most
// one torn frame, at the end, and no call of Wait returned for it. A bad frame before a good one of the same segment,
// or a gap between two segments, is damage instead: DamageError names the place, and nothing behind it is returned.
//
// The format is inspired by the logs of SQLite and PostgreSQL. As they do, it relies on a disk that leaves old bytes as
// they are when it overwrites a block with the same bytes in front of new ones.
package journal
