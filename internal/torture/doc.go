// Package torture is the proof that nothing is lost: tests that kill the real binary, cut the power under it, fail its disk, and
// compare what is left with what was acknowledged. It has no code of its own outside of tests.
//
//	client (HTTP, files) ──▶ bin/jobdir serve ──▶ storage on ext4, tmpfs, a disk that forgets (internal/faultfs), or one that records (internal/blockrec)
//	        │                      ▲                        │
//	        │ every answer         │ kill -9, power cut,    │ records, markers, logs
//	        ▼                      │ EIO, ENOSPC            ▼
//	      ledger ───────────── what must hold ──────────▶ check
//
// The ledger is the authority: it holds what was acknowledged, and nothing that was not. What must hold after each start is in
// ledger_test.go: no acknowledged operation is lost, none has two markers, no record is torn, an end never changes, a number is never
// given twice, no run begins twice, and no file is left in tmp/, taken/ or corrupt/.
//
// `go test` runs a short form of each; `make torture` (JOBDIR_TORTURE=full) runs the full counts and writes the figures of
// docs/reliability.md. A failure names the seed and leaves the storage where the message says.
package torture
