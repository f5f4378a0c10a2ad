package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// section is one letter of the output.
type section struct {
	letter  string
	title   string
	measure func(context.Context, *bench) ([]Row, error)
}

var sections = []section{
	{"a", "control: request made → marker has its new name", measureControl},
	{"b", "polling: the same with a program that looks on a timer", measurePolling},
	{"c", "stream: throughput and latency", measureStream},
	{"d", "memory of what waits", measureMemory},
	{"e", "processor time of paused operations", measureIdle},
	{"f", "start → first byte", measureStart},
	{"h", "history: what a large one costs, beside one of 1,000", measureHistory},
	{"j", "journal: ways to make a commit durable", measureCommits},
	{"k", "starting commands", measureCommands},
	{"l", "load: operations without work over HTTP", measureLoad},
	{"o", "outbox: results on their way to S3", measureOutbox},
	{"q", "queue: what many that wait cost", measureQueue},
	{"s", "questions, and a flood of submits", measureFlood},
	{"v", "this version beside an earlier one", measureVersions},
}

// bench is one run.
type bench struct {
	options
	temp   string // removed at the end
	binary string // the program, built from this tree
	// storage is the file system of the section, when it is not that of the run.
	storage string
}

// measure runs the sections and writes what they found. What was measured before an error is printed too.
func measure(ctx context.Context, o options) (err error) {
	// A thread that comes back from a blocking read needs a free processor of the runtime. With one for each core it
	// waits until the runtime has taken one from somewhere, ten times as long as the kernel took; so the observer has
	// some to spare.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + 6))
	temp, err := makeTemp(o.dir)
	if err != nil {
		return err
	}
	b := &bench{options: o, temp: temp}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	if err := raiseFileLimit(); err != nil {
		return err
	}
	if b.binary, err = buildProgram(ctx, temp); err != nil {
		return err
	}
	results := Results{Environment: describe(temp, o.durability), Began: time.Now()}
	fmt.Println(results.Environment)
	err = b.sections(ctx, &results)
	results.Took = time.Since(results.Began).Round(time.Millisecond).String()
	if o.out == "" || err != nil {
		return err
	}
	return results.write(o.out)
}

func (b *bench) sections(ctx context.Context, results *Results) error {
	for _, s := range sections {
		if len(b.only) > 0 && !slices.Contains(b.only, s.letter) {
			continue
		}
		before := loadAverage()
		b.storage = ""
		rows, err := s.measure(ctx, b)
		part := Section{
			Letter: s.letter, Title: s.title, Storage: b.storage, LoadBefore: before,
			LoadAfter: loadAverage(), Rows: rows,
		}
		part.print(os.Stdout)
		results.Sections = append(results.Sections, part)
		if err != nil {
			return fmt.Errorf("section %s: %w", s.letter, err)
		}
	}
	return nil
}

// folder makes a folder of the run.
func (b *bench) folder(name string) (string, error) {
	path, err := os.MkdirTemp(b.temp, name+"-")
	if err != nil {
		return "", fmt.Errorf("make a folder: %w", err)
	}
	return filepath.EvalSymlinks(path)
}
