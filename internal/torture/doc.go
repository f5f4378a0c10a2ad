// Package torture proves that no acknowledged operation is lost: its tests kill the real binary, cut its
// power, fail its disk, and compare the remaining state with the acknowledgements. It contains only tests.
//
//	client (HTTP, files) ──▶ bin/jobdir serve ──▶ storage on ext4, tmpfs, a disk that forgets (internal/faultfs), a disk that records (internal/blockrec)
//	        │                      ▲                        │
//	        │ every answer         │ kill -9, power cut,    │ records, markers, logs
//	        ▼                      │ EIO, ENOSPC            ▼
//	      ledger ───────────── what must hold ──────────▶ check
//
// The ledger is the authority: it contains exactly what was acknowledged. The invariants after each start are
// in ledger_test.go: no acknowledged operation is lost, none has two markers, no record is torn, an end never
// changes, a number is never issued twice, no run starts twice, and no file is left in tmp/, taken/ or
// corrupt/.
//
// `make test` runs a short form of each test, `make prove` a longer one; `make torture` runs the full counts
// and writes the figures of docs/reliability.md. Package prooftest has the sizes. A failure message contains
// the seed and the path of the storage, which is kept.
package torture
