package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

// The hint how to reattach comes after the last line of the log, not before lines that are still arriving.
func TestLeavingComesAfterTheLog(t *testing.T) {
	t.Parallel()
	footer := &client.Footer{Result: statefs.Success}
	tests := []struct {
		name   string
		footer *client.Footer
		err    error
		shown  string
	}{
		{"left", nil, errLeft, "last line\njobdir: "},
		{"ended in that moment", footer, nil, "last line\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var shown bytes.Buffer
			nowhere, err := client.New("unix:" + filepath.Join(t.TempDir(), "none"))
			if err != nil {
				t.Fatal(err)
			}
			w := &watcher{
				streams: term.Streams{In: strings.NewReader(""), Out: &shown, Err: &shown}, to: &shown,
				client: nowhere, signals: make(chan os.Signal, 1),
			}
			got, err := w.watch(t.Context(), func(ctx context.Context) (*client.Footer, error) {
				w.signals <- syscall.SIGTERM
				<-ctx.Done()
				if _, err := w.Write([]byte("last line\n")); err != nil {
					return nil, err
				}
				if test.footer != nil {
					return test.footer, nil
				}
				return nil, context.Cause(ctx)
			})
			if !errors.Is(err, test.err) || got != test.footer {
				t.Errorf("footer %v, error %v", got, err)
			}
			if !strings.HasPrefix(shown.String(), test.shown) {
				t.Errorf("shown:\n%s", shown.String())
			}
		})
	}
}
