// Package s3test runs real servers that speak S3, for tests: programs of others, started on loopback with an empty
// folder, killed, and started again where they were.
//
//	server := s3test.New(s3test.Versity, t.TempDir()) ──Start──▶ process ──Kill──▶ ... ──Start──▶ the same port and folder
//
// Which program it is says [Kind]; [Find] looks for it in PATH and where go install puts programs, and its error says
// how to get it. A server listens when Start returns. Nothing is left behind: a server ends with the process that
// started it.
//
// A [Server] belongs to one test. The objects and buckets that a test looks at are asked for with a client that is
// nothing of the daemon's.
package s3test
