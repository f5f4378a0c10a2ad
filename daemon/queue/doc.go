// Package queue decides which operation starts next. It is a pure data structure: no files, clock, goroutines
// or locks. Times are arguments, the caller serializes all calls, and the caller starts the items that Next
// returns.
//
//	Enqueue(item) ──▶ waiting ──Next(now)──▶ held ──Remove(id)──▶ gone
//	                     ▲                    ▲ │
//	                     │ Hold(running item) ┘ │
//	                     └─ Enqueue, UndoStart ─┘
//	KeepTurn(item) ──▶ keeps its turn for its key, cannot start ──Enqueue(item)──▶ waiting
//
// # Layers
//
// A file uses only what its own group and the groups below it declare:
//
//	reports  why an item waits, and counts                          why.go, stats.go
//	queue    what waits and is held: class, line, key, lane, limit  queue.go, hold.go, class.go, key.go,
//	                                                                quota.go, rate.go, item.go, tree.go
//
// # The rule
//
// An item starts when its lane is known, not paused, has a free place and is not blocked by its rate, when
// each of its limits is known and has a free place, when its key is free, and when it is its turn for the
// key. It takes all of them in one step. A waiting item therefore holds nothing, and there is no deadlock. Of
// the items that may start, the one with the best place starts: by priority (high first), then by the time
// since which it is eligible, then in order of submit. An item that cannot start does not block its lane or
// its limits.
//
// It does block its key. Turns go in order of submit, or by priority and then by submit (ByPriority); an item
// that has started before is first. Items that keep their turn (KeepTurn) count, and so do items whose lane
// or limits are full. With AnyOrder only items count that could start if the key were free. The item whose
// turn it is has the place of the most urgent item that waits for its key, in any lane, so that an urgent
// item does not wait behind a less urgent one. An item that returns after a failure keeps its old sequence
// number.
//
// With ageing one point of priority is worth that much waiting time. Places then do not change over
// time, and every waiting item eventually precedes all items submitted later. An item with several limits
// starts when they have free places at the same moment; no place is reserved for it.
//
// # The structure
//
//	Queue ── lane "cookie"   capacity 1, holders, rate; tree of its waiters by place: positions, the oldest
//	   │        ├── class {}           same lane, same limits: what blocks one item blocks all
//	   │        │     ├── line of items without a key: a tree by place
//	   │        │     └── heap of key lines, by the place of the most urgent of the key; only lines that may have the turn
//	   │        └── class {yt-dlp}
//	   ├── limit "yt-dlp"   capacity 1, holders
//	   └── key "sub-7"      holders; its lines, one for each class with a waiter; the items that keep their turn;
//	                        the most urgent waiter; the item whose turn it is
//
// Next checks once for each class whether it may start anything, and then compares its two heads. Only one
// line of each key is in a heap: that of the item whose turn it is. With AnyOrder all lines of the key are in
// heaps, with the same place; when the key wins, its lines determine the first item among the open classes. So Next
// never skips a head, and never examines the items behind it.
//
// # Complexity
//
// With n waiting items, c classes in use and l lines of a key (at most c): Enqueue, Hold and Remove take
// O(c + l log n), and the release of a held item is linear in the items held in its lane and limits. Next takes
// O((c + l) log n), Wake O(c), Why O(l log n) plus the limits of the item.
// Statistics of all lanes are linear in the number of lanes. A waiting item takes about 160 bytes, and 200 more
// if it is the only one of its key; the texts of ID and key belong to the caller.
//
// # Errors
//
// No call can fail. An unknown lane or limit, for example after its removal from the configuration, has no
// free place; its items wait with that reason until it is set. The number of free places is the capacity
// minus the number of held items, computed each time. After a restart, or when a capacity is lowered, more
// items may be held than it allows; then nothing starts until enough have left.
package queue
