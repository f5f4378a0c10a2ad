package jobsexample_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

const media = "media-pipeline"

var terminalBlocks = regexp.MustCompile("(?s)```(?:sh|console)\n.*?```")

// Each part of the page below "Try it" is a walk of its own, on a new storage. In a walk, a block "sh" starts the
// daemon again that was killed.
func TestMediaPipelineWalks(t *testing.T) {
	t.Parallel()
	text, path := readme(t, media)
	parts := strings.Split(text, "\n## ")
	t.Run("walks", func(t *testing.T) {
		for i, part := range parts {
			if !strings.Contains(part, "```console\n") {
				continue
			}
			title, _, _ := strings.Cut(part, "\n")
			t.Run(title, func(t *testing.T) {
				t.Parallel()
				s := serveExample(t, media, text)
				window := s.terminal(media)
				parts[i] = terminalBlocks.ReplaceAllStringFunc(part, func(block string) string {
					if strings.HasPrefix(block, "```sh") {
						s.serveAgain()
						return block
					}
					return window.typeBlock(block)
				})
			})
		}
	})
	if !t.Failed() {
		compareOrUpdate(t, path, text, strings.Join(parts, "\n## "))
	}
}

// serveAgain starts the daemon once more, after it was killed.
func (s *stage) serveAgain() {
	s.t.Helper()
	killed := s.daemon
	err := killed.Wait()
	if status, ok := killed.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		s.t.Fatalf("the daemon was not killed: %v", err)
	}
	s.daemon = s.command(killed.Dir, killed.Args[2])
	s.serve()
}

// What the tools make is what the recording has: each part is a WAV file of its own with the samples of one song.
func TestMediaPipelineCutsTheRecording(t *testing.T) {
	t.Parallel()
	text, _ := readme(t, media)
	s := serveExample(t, media, text)
	printed := s.shell(media, []string{
		`tools/record quiz "quick brown fox jumps over a lazy dog" 9`,
		`ID=$(jobdir submit media/pipeline show=quiz); jobdir wait $ID >/dev/null; echo $ID`,
		`while ls $JOBDIR_STORAGE/jobs | grep -q $ID; do sleep 0.1; done`,
		`jobdir show --json $ID`,
		`echo $LIBRARY/inbox/quiz.wav`,
		`cat $LIBRARY/published/quiz/comment.txt`,
	})
	id, err := statefs.ParseID(strings.TrimSpace(printed[1]))
	if err != nil {
		t.Fatal(err)
	}
	var shown struct {
		Status, Result, Phase string
		AllDone               bool `json:"all_done"`
		Artifacts             []string
		Steps                 []steps.Step
	}
	if err := json.Unmarshal([]byte(printed[3]), &shown); err != nil {
		t.Fatalf("%v\n%s", err, printed[3])
	}
	if shown.Status != "completed" || shown.Result != "success" || shown.Phase != "collection_synced" || !shown.AllDone ||
		len(shown.Steps) != 8 {
		t.Errorf("shown\n%s", printed[3])
	}
	for _, step := range shown.Steps {
		if step.Status != steps.Succeeded || step.Retries != 0 {
			t.Errorf("step %s is %s, after %d retries", step.Name, step.Status, step.Retries)
		}
	}
	if want := "In this show: \"quick brown fox jumps over a lazy dog\", and 9 songs.\n"; printed[5] != want {
		t.Errorf("the comment is %q, want %q", printed[5], want)
	}
	artifacts, recording := filepath.Join(s.dir, "operations", id.Day(), id.String()+".artifacts"),
		readFile(t, strings.TrimSpace(printed[4]))
	from := wavHeader
	for i := range 9 {
		name := fmt.Sprintf("parts/quiz-%d.wav", i+1)
		if !slices.Contains(shown.Artifacts, name) {
			t.Errorf("%s is no artifact: %q", name, shown.Artifacts)
		}
		part := readFile(t, filepath.Join(artifacts, name))
		samples := part[wavHeader:]
		if at := bytes.Index(recording[from:], samples); len(samples) != 12000 || at < 4000 {
			t.Fatalf("%s has %d samples, which are %d behind the song before it", name, len(samples), at)
		} else {
			from += at + len(samples)
		}
		if size := binary.LittleEndian.Uint32(part[40:]); string(part[:4]) != "RIFF" || string(part[8:16]) != "WAVEfmt " ||
			int(size) != len(samples) {
			t.Errorf("%s begins with %q", name, part[:wavHeader])
		}
	}
}

// wavHeader is the length of the header of a WAV file.
const wavHeader = 44

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
