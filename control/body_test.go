package control

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/control/front"
)

// late sends a whole request before it reads the answer.
func late(t *testing.T, l net.Listener, head string, body io.Reader) (answer string, err error) {
	t.Helper()
	conn, err := net.Dial(l.Addr().Network(), l.Addr().String())
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(patience)))
	if tcp, ok := conn.(*net.TCPConn); ok {
		must(t, tcp.SetWriteBuffer(64<<10)) // the unread part must not fit into the kernel's buffers
	}
	if _, err = io.WriteString(conn, head); err == nil {
		_, err = io.Copy(conn, body)
	}
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(conn)
	return string(data), err
}

// zeros is a body of this many zero bytes.
func zeros(n int) io.Reader { return strings.NewReader(strings.Repeat("0", n)) }

func TestLargeBodyIsAnsweredToLateReaders(t *testing.T) {
	t.Parallel()
	r := setup(t)
	const head = "POST /media/decode HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	announced := func(n int) string { return head + fmt.Sprintf("Content-Length: %d\r\n\r\n", n) }
	chunked := func(n int) (string, io.Reader) {
		size, end := strings.NewReader(fmt.Sprintf("%x\r\n", n)), strings.NewReader("\r\n0\r\n\r\n")
		return head + "Transfer-Encoding: chunked\r\n\r\n", io.MultiReader(size, zeros(n), end)
	}
	for name, l := range map[string]net.Listener{"tcp": r.tcp, "unix": r.unix} {
		for _, n := range []int{front.MaxBody + 1, front.MaxBody + front.MaxDrain/2, front.MaxBody + front.MaxDrain - 100} {
			answer, err := late(t, l, announced(n), zeros(n))
			if err != nil || !strings.HasPrefix(answer, "HTTP/1.1 413 ") || !strings.Contains(answer, `"error":"The body has`) {
				t.Errorf("%s, %d bytes announced: %.300q %v", name, n, answer, err)
			}
			h, body := chunked(n)
			answer, err = late(t, l, h, body)
			if err != nil || !strings.HasPrefix(answer, "HTTP/1.1 413 ") ||
				!strings.Contains(answer, `"error":"The body is larger`) {
				t.Errorf("%s, %d bytes chunked: %.300q %v", name, n, answer, err)
			}
		}
		// The bytes beyond are not read.
		if answer, err := late(t, l, announced(64<<20), zeros(64<<20)); err == nil {
			t.Errorf("%s: 64 MiB were read: %.300q", name, answer)
		}
	}
}

func TestMalformedChunks(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for _, target := range []string{"/media/decode", "/api/v1/operations", "/testrouter/control", "/api/v1/bulk"} {
		for _, body := range []string{
			"zz\r\n{}\r\n0\r\n\r\n", "2\r\n{}x\r\n0\r\n\r\n", "-1\r\n\r\n", "fffffffffffffffff\r\n",
			"2;" + strings.Repeat("x", 8<<10) + "\r\n{}",
		} {
			head := "POST " + target + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
			answer := r.exchange(r.tcp, head+"Transfer-Encoding: chunked\r\n\r\n"+body)
			if !strings.HasPrefix(answer, "HTTP/1.1 400 ") || !strings.Contains(answer, front.ProblemType) {
				t.Errorf("%s %.30q: %.300q", target, body, answer)
			}
		}
	}
	if text := r.logged.String(); strings.Contains(text, "level=ERROR") {
		t.Errorf("the log has: %s", text)
	}
}
