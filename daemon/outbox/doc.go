// Package outbox delivers the results of operations to targets outside of the storage: buckets,
// webhooks and folders.
//
//	Add(entry, target) ──▶ Plan ──Next(now)──▶ a worker ──Deliver──▶ settled: gone
//	                        ▲                                    └─▶ failed: the target is down
//	                        └────────────── back after all entries with fewer tries ──┘
//
// # Layers
//
// A file uses only what its own group and the groups below it declare:
//
//	targets  the kinds of targets                  kind.go, folder.go, webhook.go, s3.go, s3_upload.go,
//	                                               s3_errors.go, stall.go
//	outbox   runs the tries that the plan admits   outbox.go
//	plan     which entry is tried next             plan.go, view.go
//	values   what a target gets, its keys, errors  target.go, key.go, secret.go, private.go
//
// # Scheduling
//
// [Plan] alone decides which entry is tried next. It is a structure in memory without clock, files
// or locks.
//
// A target is down when a try at it fails. It is then probed with one entry at a time, at most once
// per [ProbeInterval], however many entries wait for it. A target is up again when it accepts an
// entry, or refuses one for a reason that lies in the entry; then all its entries may be tried at
// once. A probe takes one of the entries with the fewest tries, alternately the oldest and the
// newest, so that an entry which a target never accepts does not block the others.
//
// An entry that a user asks to retry is tried once, as soon as a worker is free, even while its
// target is down. Of the entries requested for one target, only the last [maxUrgent] go first: a
// thousand requests do not cost a target that is down a thousand tries.
//
// [Outbox] carries that out. It bounds the concurrent deliveries, in all and per target, and waits
// for the next probe. The caller implements a delivery; the entries are files of package statefs,
// which the caller reads and writes.
//
// # Targets
//
// [Kinds] lists the kinds of targets. A [Kind] is declared in one file: its keys in a job file, from
// which package catalog checks jobs and the documentation is made, and the [Target] that delivers.
//
//	deliver: - s3: {...} ──catalog──▶ Settings ──Kind.Target──▶ Target ──Deliver(Parcel)──▶ Receipt
//
// The targets are [Folder], [Webhook] and [S3]. Each delivery may be repeated without harm: a file
// or an object is replaced by an equal one, and a request carries the same webhook-id each time.
// Only a webhook's body is held in memory; files are read in place, once per try. Secrets are read at
// each try.
//
// # Errors
//
// An error is one of four kinds: a [*RefusedError], which no further try can fix and a person must
// see; a [*RetryAfterError], by which the target asks for a pause; a [*LocalError], which is not
// the target's fault; or any other, which is retried. Nothing is lost when the process ends: the
// entries are on the disk, and the next process adds them again.
package outbox
