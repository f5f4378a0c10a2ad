// Package stream implements the format of an operation's stream: a header, its log while it grows, and a footer.
//
// The stream is not stored. It is composed on each read from three parts that the storage holds:
//
//	record: header ─────┐   frozen at submit
//	ID.log, append only ┼──▶ Text    <start_json> … <log> … </log> <end_json> …      ──▶ Parser, or three regular expressions
//	record: footer ─────┘   frozen   Events  server-sent events, id = offset         ──▶ EventSource
//	        log length      at end   WaitFooter  the footer alone                    ──▶ curl
//
// The record and the log are the source of truth; a stream is a view of them. Its bytes do not depend on when it is
// read: they are the same live, late and repeated, for any number of readers, each at its own pace.
//
// # Layers
//
// A file uses only what its own group and the groups below it declare:
//
//	readers  the stream for one reader          text.go, sse.go
//	client   reads a stream that was received   parser.go
//	writer   appends to a log                   writer.go
//	follow   reads an operation while it grows  follow.go, source.go, output.go
//	format   frame, escapes, JSON, lines        compose.go, escape.go, json.go, printable.go
//
// # The text form
//
//	stream     = start log [ end ] ;                              (* no end: cut off *)
//	start      = "<start_json>" LF header LF "</start_json>" LF ;
//	log        = "<log>" LF { text } ;                            (* escaped bytes of the log, from the offset *)
//	end        = "</log>" LF "<end_json>" LF footer LF "</end_json>" LF ;
//	header     = (* a JSON object on one line *) ;
//	footer     = (* a JSON object: one member a line, an array of objects one element a line *) ;
//
//	┌──────────────────────────────┐
//	│ <start_json>                 │ one write, flushed before any byte of the log
//	│ {"id": "…", "total": 20}     │
//	│ </start_json>                │
//	│ <log>                        │
//	├──────────────────────────────┤
//	│ [ 1 / 20 ] Processing …      │ lines as they are written, coalesced under load;
//	│   OK.                        │ a line that is not finished after at most 100 ms
//	├──────────────────────────────┤
//	│ </log>                       │ one write, flushed
//	│ <end_json>                   │
//	│ { … }                        │
//	│ </end_json>                  │
//	└──────────────────────────────┘
//
// The text of a log is the log and, when it is not empty and does not end in a newline, one more newline. A stream from
// offset N contains the text from byte N on, where N counts bytes of the log file; beyond the end of the text it
// contains nothing of it. Hence "</log>" is always at the start of a line, and an empty log is "<log>", "</log>" with
// nothing between them.
//
// # What a log cannot do
//
// A log cannot forge the frame. Text that looks like one of its tags is changed (escape.go has the rule), and a
// [Parser] undoes that exactly. The newline that the text form adds is escaped with the rest: "<log" at the very
// end of a log is followed by white space in the stream, so it counts as a tag, for the composer and for the reader.
// JSON parts never contain a "<": it is written as \u003c. So these expressions of a client, applied to every state of
// its growing buffer, find the header, the escaped log and the footer, and nothing else:
//
//	/<start_json>\n(.*?)\n<\/start_json>/s
//	/<log>\n(.*?)(?:<\/log>|$)/s
//	/<end_json>\n(.*?)\n<\/end_json>/s
//
// # What a missing footer means
//
// A stream without a footer was cut off: the connection broke, the daemon stopped or the reader left. It reveals
// nothing about the operation, whatever the status of the HTTP response was. The reader continues with offset = the
// number of log bytes that it has ([Parser.LogBytes] counts them), or reads the record.
//
// # What happens on failure
//
// An error of a [Source], or a reader that disconnects, ends that one stream with an error; the work and other readers
// are not affected. A log that is missing or shorter than its sealed length (files lost in a power cut) is sent as far
// as it goes, followed by the footer: the result of an operation stays readable without its log.
//
// The daemon appends to a log through a [Writer].
package stream
