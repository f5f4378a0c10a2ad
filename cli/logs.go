package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/backend"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
	"github.com/jobdir/jobdir/stream"
)

type logsOptions struct {
	follow bool
	offset int64
	step   string
	run    int
}

func (a *app) logsCommand() *cobra.Command {
	var opts logsOptions
	cmd := &cobra.Command{
		Use:   "logs ID",
		Short: "Write the log of an operation",
		Long: `logs writes the log of a live or ended operation to stdout. With -f it continues until the operation ends; the
outcome goes to stderr and does not change the exit code ('jobdir wait' does that). With --json each line is an object
with its offset in the log, its text, and cut: true when the line is incomplete: the last one, or a piece of a line
longer than 64 KiB.

With --step it writes the output of the last run of that step, also of an optional step, which has a log of its own;
with --run that of an earlier run. When there is more than one, stderr lists them.

An ID may be shortened to its end, such as r42 or 42, or to a beginning that only one live operation has.`,
		Args:              exactlyOne("an ID"),
		ValidArgsFunction: a.completeIDs(1),
		RunE:              a.follows(opts.show),
	}
	cmd.Flags().BoolVarP(&opts.follow, "follow", "f", false, "follow the log until the operation ends")
	cmd.Flags().Int64Var(&opts.offset, "offset", 0, "begin at this byte of the log")
	cmd.Flags().StringVar(&opts.step, "step", "", "only what this step wrote in its last run")
	_ = cmd.RegisterFlagCompletionFunc("step", a.completeSteps()) // the flag exists
	cmd.Flags().IntVar(&opts.run, "run", 0, "with --step: what it wrote in this run, by its number")
	jsonFlag(cmd)
	return cmd
}

func (opts *logsOptions) show(ctx context.Context, s *session, args []string) error {
	if opts.offset < 0 {
		return exit.Usagef("flag --offset: %d is below zero", opts.offset)
	}
	if opts.step != "" && (opts.follow || opts.offset > 0) {
		return exit.Usagef("--step goes with neither --follow nor --offset")
	}
	oneRun := s.flags.Changed("run")
	if oneRun && opts.step == "" {
		return exit.Usagef("--run is the number of a run of a step, and goes with --step")
	}
	if oneRun && opts.run < 1 {
		return exit.Usagef("--run: %d is not the number of a run, the first is 1; leave it out for the last one", opts.run)
	}
	b, err := s.open(ctx, "")
	if err != nil {
		return err
	}
	id, err := b.ID(ctx, args[0])
	if err != nil {
		return err
	}
	if !s.json {
		return opts.write(ctx, s, b, id, s.streams.Out)
	}
	lines := newLogLines(s.streams.Out, opts.offset)
	return errors.Join(opts.write(ctx, s, b, id, lines), lines.end())
}

func (opts *logsOptions) write(ctx context.Context, s *session, b *backend.Backend, id statefs.ID, out io.Writer) error {
	var log io.ReadCloser
	var err error
	switch {
	case opts.follow:
		footer, err := b.Follow(ctx, id, opts.offset, out)
		if err == nil && footer != nil {
			s.streams.Notice("%s", summary(id, footer))
		}
		return explainCut(err)
	case opts.step != "":
		var output *client.StepOutput
		if output, err = b.StepOutput(ctx, id, opts.step, opts.run); err == nil {
			log = output
			if len(output.Runs) > 1 {
				s.streams.Notice("run %d of step %s; %s", output.Run, opts.step, steps.DescribeRuns(output.Runs))
			}
		}
	default:
		log, err = b.Log(ctx, id, opts.offset)
	}
	if err != nil {
		return err
	}
	defer log.Close()
	if _, err := io.Copy(out, log); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	return nil
}

// logLine is one line of a log. Bytes that are not UTF-8 are replaced, as JSON requires.
type logLine struct {
	// Offset is the offset of the line in the log, in bytes.
	Offset int64  `json:"offset"`
	Line   string `json:"line"`
	// Cut reports that the line does not end here: the log ends without a newline, or the line is longer than
	// maxLogLine and continues in the next object.
	Cut bool `json:"cut,omitempty"`
}

// maxLogLine is how many bytes of a line are buffered before they are written. It bounds the memory for a log
// without newlines.
const maxLogLine = 64 << 10

// logLines splits a log into lines.
type logLines struct {
	out    *json.Encoder
	offset int64
	rest   []byte // less than maxLogLine bytes without a line end
}

func newLogLines(to io.Writer, offset int64) *logLines {
	out := json.NewEncoder(to)
	out.SetEscapeHTML(false)
	return &logLines{out: out, offset: offset}
}

func (l *logLines) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		piece := rest[:min(len(rest), maxLogLine-len(l.rest))]
		piece, _, ended := bytes.Cut(piece, []byte("\n"))
		l.rest = append(l.rest, piece...)
		rest = rest[len(piece):]
		var err error
		switch {
		case ended:
			err = l.put(len(l.rest), false)
			l.offset++
			rest = rest[1:]
		case len(l.rest) == maxLogLine:
			err = l.put(stream.WholeCharacters(l.rest), true)
		}
		if err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// put writes the first n buffered bytes.
func (l *logLines) put(n int, cut bool) error {
	err := l.out.Encode(logLine{Offset: l.offset, Line: string(l.rest[:n]), Cut: cut})
	if err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	l.offset += int64(n)
	l.rest = append(l.rest[:0], l.rest[n:]...)
	return nil
}

func (l *logLines) end() error {
	if len(l.rest) == 0 {
		return nil
	}
	return l.put(len(l.rest), true)
}
