// Command fakejob is a child process for tests: it executes its flags in the order of this list, and exits.
//
//	-on-term ignore|N        ignores SIGTERM, or prints "terminated" and exits with code N; default: dies of it
//	-env NAME                prints "NAME=value", or "NAME unset"; may be repeated
//	-stdin                   reads standard input to its end and prints "stdin N bytes"
//	-lines N                 prints "line 1" to "line N"; with -stderr each line goes to standard error in turn
//	-bytes N                 writes N bytes, in lines of 64
//	-progress "5 20 copy"    appends that line to $JOBDIR_PROGRESS; may be repeated
//	-result '{"a":1}'        writes that to $JOBDIR_RESULT
//	-child "FLAGS"           starts another fakejob with these flags (split at spaces) in the same group, which keeps the
//	                         same output open, and does not wait for it; may be repeated
//	-daemon "FLAGS"          the same as a daemon: session of its own, double fork, so that its parent is not this process;
//	                         the environment is kept; may be repeated
//	-tell FIFO               writes its process number and a newline to FIFO: it is ready; a test reads it from there
//	-count                   prints "count N" every millisecond until it is ended
//	-until FIFO              blocks until a byte can be read from FIFO
//	-hang                    blocks until it is ended
//	-signal N                sends itself the signal with that number (1, 2, 9 or 15: some others do not end a Go program)
//	-exit N                  exits with code N; default 0
//
// Errors are printed to standard error, with exit code 99.
package main
