package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
)

// ownPrefix begins the names of a daemon's settings and secrets, and of the marks of commands. A
// keeper's environment contains none of them.
const ownPrefix = "JOBDIR_"

// spawn starts a keeper process and returns its number. The keeper gets a session of its own:
// neither Ctrl-C nor the hang-up of a terminal reaches it, and it outlives this process.
func (p *Pool) spawn(ctx context.Context) (int, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer read.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, errors.Join(err, write.Close())
	}
	defer null.Close()
	closeInherited()
	var child *leader
	err = children.fork(func() (pid int, err error) {
		attr := &syscall.ProcAttr{Dir: "/", Env: keeperEnviron(), Files: []uintptr{null.Fd(), write.Fd(), write.Fd()}}
		if child, err = forkLeader(p.Executable, p.Program, attr, false); err != nil {
			return 0, err
		}
		return child.pid, nil
	})
	if err = errors.Join(err, write.Close()); err != nil {
		return 0, err
	}
	p.group.Go(func() { p.await(child) })
	return awaitAnnouncement(ctx, read)
}

// await reaps a keeper that ends while this process runs.
func (p *Pool) await(child *leader) {
	defer child.close()
	t := &target{pidfdProcess: child.process}
	if t.awaitExit(p.ctx, time.Time{}) != nil {
		return // the pool is closed
	}
	_ = children.reap(child.pid, nil, nil) // it has exited
}

func keeperEnviron() []string {
	env := []string{}
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, ownPrefix) {
			env = append(env, entry)
		}
	}
	return env
}

// awaitAnnouncement reads what a keeper prints until it serves or has ended.
func awaitAnnouncement(ctx context.Context, from *os.File) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = from.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	text, err := io.ReadAll(io.LimitReader(from, 64<<10))
	for line := range strings.Lines(string(text)) {
		var said announcement
		if json.Unmarshal([]byte(line), &said) == nil && said.Keeper > 0 {
			return said.Keeper, nil
		}
	}
	return 0, errors.Join(fmt.Errorf("it did not begin to serve: %q", strings.TrimSpace(string(text))), err)
}
