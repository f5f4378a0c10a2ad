// Package queue decides what starts next. It is a data structure and nothing else: no files, no clock, no goroutine and no lock. Times
// are arguments, the caller lets one goroutine at a time in, and what Next returns is for the caller to carry out.
//
//	Wait(item) ──▶ waiting ──Next(now)──▶ held ──Leave(id)──▶ gone
//	                  ▲                    ▲ │
//	                  └──── Wait(item) ────┼─┘
//	     Hold(item): it runs already ──────┘
//
// # The rule
//
// An item starts when its lane is known, not paused, has room and is not held back by its rate, when every one of its limits is known and
// has room, when nobody holds its key, and when no other item of its key that could start but for the key stands before it. It takes all of
// that in one step, so nobody has anything in hand while waiting, and there is no deadlock. Of those that may start, the one with
// the best place does: by priority (high first), then by the time since when it is eligible, then in order of submit. What cannot start
// holds up nobody: not its lane, not its limits, not its key.
//
// The order within a key is that of submit; when all that wait for the key ask for it (KeyByPriority) it is by priority and then by
// submit. The one whose turn it is has the place of the most urgent that waits for its key, in whatever lane that waits, so that an urgent
// item is not held up behind a patient one. An item that comes back after a failure has its old sequence number, and with it its old turn.
//
// With Options.Ageing one point of priority is worth that much waiting. Places then do not change while time passes, and sooner or
// later everything that waits stands before all that is submitted afterwards. What needs several limits starts when they have room at the
// same moment: nothing is reserved for it meanwhile.
//
// # The structure
//
//	Queue ── lane "cookie"   capacity 1, holders, rate; all that wait in it as a tree in order of place: positions, the oldest
//	   │        ├── class {}           same lane, same limits: what hinders one of them hinders all
//	   │        │     ├── line of those without a key: a tree in order of submit that knows the best place in it
//	   │        │     └── heap of key lines, by the place of the most urgent of the key; only keys that nobody holds
//	   │        └── class {yt-dlp}
//	   ├── limit "yt-dlp"   capacity 1, holders
//	   └── key "sub-7"      holders; its lines, one for each class in which somebody waits for it; the most urgent of all of them
//
// A class is looked at once to see whether it may start anything, and then offers its two heads. When the winner is a key, its lines say who of
// it is first among the classes that are open. All lines of a key have the same place in their heaps, so a head is never skipped and
// nothing behind it is looked at.
//
// # What it costs
//
// With n that wait, c classes in use and l lines of a key (at most c): Wait, Hold and Leave take O(c + l log n), Next O(c + l log n)
// for each start and O(c) when there is none, Wake O(c), Why O(l log n) beside the limits of the item. What is said of all lanes takes as long
// as there are lanes. One that waits takes about 160 bytes, and 140 more when it is the only one of its key; the texts of ID and key are
// the caller's.
//
// # What happens on failure
//
// Nothing can fail. A lane or limit that is not known, because the configuration lost it, is one that has no room; whoever waits there says
// so and goes on when it is set. Room is the capacity less the number of those that are held, counted each time; after a restart, or when a capacity is
// lowered, more may be held than there is room for, and nothing starts until enough have left.
package queue
