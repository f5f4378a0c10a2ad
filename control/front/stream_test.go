package front

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

var errStopped = errors.New("the server has stopped")

// startStreams runs a server whose only route is a stream. stop stops it and waits for its end.
func startStreams(t *testing.T, limits Limits, serve func(context.Context, *Stream)) (dial func() net.Conn, stop func()) {
	t.Helper()
	server, err := New(Config{
		Routes: []Route{{Method: "GET", Path: "/stream", Handle: func(w *Response, _ *Request) error {
			w.Header().Set("Content-Type", MediaText)
			return w.Stream(serve)
		}}},
		Refusal: func(error) *RefusalError { return Refuse(http.StatusInternalServerError, "failed") },
		Fault:   func(err error) { t.Error(err) },
		Quota:   func() error { return nil },
		Stopped: errStopped, Limits: limits, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l) }()
	stopped := false
	stop = func() {
		if cancel(); !stopped {
			stopped = true
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return func() net.Conn {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}, stop
}

func request(t *testing.T, c net.Conn, version string) {
	t.Helper()
	if _, err := io.WriteString(c, "GET /stream HTTP/"+version+"\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
}

// A client gets the bytes of all writes, and sees by the frame of HTTP whether the answer is complete.
func TestStreamIsFramed(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("0123456789abcdef", 1<<16)
	dial, _ := startStreams(t, Limits{}, func(_ context.Context, out *Stream) {
		for _, text := range []string{"first", "", large, "last"} {
			if n, err := io.WriteString(out, text); n != len(text) || err != nil {
				t.Errorf("wrote %d of %d bytes: %v", n, len(text), err)
			}
		}
	})
	for _, version := range []string{"1.1", "1.0"} {
		c := dial()
		request(t, c, version)
		in := bufio.NewReader(c)
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close() // it was read to its end
		if err != nil || string(body) != "first"+large+"last" {
			t.Errorf("HTTP/%s: %d bytes, %v", version, len(body), err)
		}
		if chunked := len(answer.TransferEncoding) > 0; chunked != (version == "1.1") || !answer.Close ||
			answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != MediaText {
			t.Errorf("HTTP/%s: %+v", version, answer)
		}
		if rest, err := io.ReadAll(in); len(rest) > 0 || err != nil {
			t.Errorf("HTTP/%s: after the answer %q, %v", version, rest, err)
		}
	}
}

func TestStreamEndsWithItsClient(t *testing.T) {
	t.Parallel()
	causes := make(chan error, 1)
	dial, _ := startStreams(t, Limits{}, func(ctx context.Context, out *Stream) {
		_, _ = io.WriteString(out, "ready") // an error also ends ctx
		<-ctx.Done()
		causes <- context.Cause(ctx)
	})
	c := dial()
	request(t, c, "1.1")
	request(t, c, "1.1") // a second request is ignored
	if line, err := bufio.NewReader(c).ReadString('y'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	_ = c.Close()
	if cause := <-causes; !errors.Is(cause, context.Canceled) {
		t.Errorf("ended by %v", cause)
	}
}

// A panic ends one stream, without the last chunk.
func TestPanicInAStream(t *testing.T) {
	t.Parallel()
	dial, _ := startStreams(t, Limits{}, func(_ context.Context, out *Stream) {
		_, _ = io.WriteString(out, "begun") // the client reads it
		panic("on purpose")
	})
	for range 2 {
		c := dial()
		request(t, c, "1.1")
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close() // it was read to its end
		if string(body) != "begun" || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q, %v", body, err)
		}
	}
}

// A stopping server lets streams say goodbye, and waits for a client that reads nothing no longer than for others.
func TestStopEndsStreams(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 2)
	dial, stop := startStreams(t, Limits{Stop: 50 * time.Millisecond}, func(ctx context.Context, out *Stream) {
		begun <- struct{}{}
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, errStopped) || !out.Draining() {
			t.Errorf("ended by %v, draining %v", cause, out.Draining())
		}
		_, _ = io.WriteString(out, "goodbye") // the stuck client does not read it
		for piece := make([]byte, 1<<20); ; {
			if _, err := out.Write(piece); err != nil {
				return
			}
		}
	})
	reads, stuck := dial(), dial()
	request(t, reads, "1.1")
	request(t, stuck, "1.1")
	<-begun
	<-begun
	read := make(chan string, 1)
	go func() {
		data, _ := io.ReadAll(io.LimitReader(reads, 1<<10)) // a short answer fails below
		read <- string(data)
	}()
	stop()
	if got := <-read; !strings.Contains(got, "goodbye") {
		t.Errorf("read %q", got)
	}
}
