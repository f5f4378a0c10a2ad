package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	o, err := parseOptions(os.Args[1:])
	if err == nil {
		err = measure(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:gocritic // everything that was deferred has nothing to undo but the signal handler
	}
}

// options are the flags.
type options struct {
	only       []string
	out        string
	dir        string
	durability string
	window     time.Duration
	history    int // ended operations of the large history
	peers      string
	before     string // an earlier program
	beforeRun  string // an earlier build of this program
	counts     counts
}

// counts are how often each thing is done.
type counts struct {
	rounds    int // pause and resume, each way
	cancels   int
	appends   int
	starts    int
	repeats   int // runs of a throughput; the median counts
	bytes     int // of a log, in 64 KiB pieces and one reader; the others are parts of it
	readers   int
	streams   int
	paused    int
	pollers   int // operations of the polling program
	pollTurns int // rounds of each
	rest      time.Duration
	commands  int // of a turn
	load      int // operations of a turn of section l with many clients, and of section o
	seconds   int // how long section l submits at a steady rate
	queued    int // operations of sections q and s, results in section o
	turns     int // of sections q and s
}

var (
	fullCounts = counts{
		400, 300, 2000, 300, 3, 512 << 20, 100, 5000, 1000, 60, 10, time.Second, 2000,
		3000, 10, 100_000, 300,
	}
	quickCounts = counts{4, 2, 5, 3, 1, 4 << 20, 4, 20, 10, 4, 1, 20 * time.Millisecond, 8, 40, 1, 40, 4}
)

func parseOptions(args []string) (options, error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	quick := flags.Bool("quick", false, "small counts: whether everything works, not how fast it is")
	only := flags.String("only", "", "sections to measure, such as a,c; all when empty")
	out := flags.String("out", "bench/results/latest.json", "file for the results as JSON; none when empty")
	dir := flags.String("dir", "", "folder for the temporary storage; a temporary folder on a disk when empty")
	durability := flags.String("durability", "power", "durability of the storage: power or process")
	seconds := flags.Float64("seconds", 0, "how long section e looks at paused operations; 30 when 0, 0.2 with -quick")
	history := flags.Int("history", 0, "how many ended operations section h has on disk; 1000000 when 0, 3000 with -quick")
	load := flags.Int("load", 0, "how many operations a turn of sections l and o has; 3000 when 0, 40 with -quick")
	queued := flags.Int("queued", 0,
		"how many operations wait in section q and are submitted in section s, and results in section o; 100000 when 0, 40 with -quick")
	peers := flags.String("peers", "",
		"program of bench/peers, whose figures stand beside those of section l; none when empty")
	before := flags.String("before", "",
		"an earlier program, whose figures stand beside those of section s; none when empty")
	beforeRun := flags.String("before-bench", "",
		"an earlier build of this program, whose daemon is measured beside this one in section v; this one when empty")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	o := options{
		out: *out, dir: *dir, durability: *durability, peers: *peers, before: *before, beforeRun: *beforeRun,
		window: 30 * time.Second, counts: fullCounts,
	}
	if *quick {
		o.window, o.counts = 200*time.Millisecond, quickCounts
	}
	switch {
	case *history > 0:
		o.history = *history
	case *quick:
		o.history = 3000
	default:
		o.history = 1_000_000
	}
	o.counts.load, o.counts.queued = cmp.Or(*load, o.counts.load), cmp.Or(*queued, o.counts.queued)
	if *seconds > 0 {
		o.window = time.Duration(*seconds * float64(time.Second))
	}
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	for _, name := range o.only {
		if !slices.ContainsFunc(sections, func(s section) bool { return s.letter == name }) {
			return options{}, fmt.Errorf("-only %s: there is no section %q", *only, name)
		}
	}
	return o, nil
}
