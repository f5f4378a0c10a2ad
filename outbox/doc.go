// Package outbox brings what operations have made to targets outside of the storage: buckets, webhooks and folders.
//
//	Add(entry, target) ──▶ Plan ──Next(now)──▶ a worker ──Deliver──▶ settled: gone
//	                        ▲                                    └─▶ failed: the target is down
//	                        └────────────── back, behind those that were tried less ──┘
//
// # Who decides
//
// [Plan] alone says which entry is tried next: a structure in memory without clock, files or locks. A target at which something failed
// is down: it is tried with one entry at a time, and not again within [ProbeInterval], however many wait for it. The first
// entry that it takes, or refuses for a reason of its own, brings it up again, and all that wait for it go at once. Those are tried meanwhile
// that were tried least, the oldest and the newest of them in turn, so an entry that a target never takes does not keep the others back.
// An entry that somebody asks for is tried once as soon as a worker is free, however long its target is to be left alone and whatever the others there come
// to; of one target the [mostAsked] that were asked for last are, so that a thousand requests cost a target that is away no thousand tries.
//
// [Outbox] carries that out: it runs at most so many deliveries at once, in all and at one target, and waits for the time of the
// next probe. What a delivery is, the caller says; the entries are files of package statefs, and the caller reads and writes them.
//
// [Folder], [Webhook] and [S3] are the targets. Each is harmless to repeat: a file or an object is replaced by an equal one, a request has the same
// webhook-id each time. Nothing is held in memory but a webhook's body: files are read where they are, as often as it takes.
//
// # What failure does
//
// An error is one of three things: a [*RefusedError], which no further try mends and a person must see; one that says when to come
// back ([*LaterError]); or any other, which is tried again. Nothing is lost when the process ends: the entries are on the disk, and
// the next one adds them again.
package outbox
