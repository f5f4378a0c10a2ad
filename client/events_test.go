package client_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jobdir/jobdir/client"
)

func TestEventsGoOnWhereTheyWere(t *testing.T) {
	t.Parallel()
	var asked []string
	var calls atomic.Int32
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		switch calls.Add(1) {
		case 1:
			fmt.Fprint(w,
				": idle\nid: 7\n\nevent: sweep\ndata: {\"seq\":8,\n: between\ndata: \"type\":\"sweep\"}\nid: 8\n\ndata: {\"seq\":9,")
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 3:
			fmt.Fprint(w, "data: {\"seq\":9,\"type\":\"gap\",\"gap\":{\"from\":9,\"to\":9,\"reason\":\"lost\"}}\nid: 9\n\n")
		case 4:
			w.WriteHeader(http.StatusForbidden)
		}
	})
	var got []uint64
	var last error
	for e, err := range c.Events(t.Context(), url.Values{"job": {"a"}}) {
		if last = err; err == nil {
			got = append(got, e.Seq)
		}
	}
	if fmt.Sprint(got) != "[8 9]" || fmt.Sprint(asked) != "[job=a after=8&job=a after=8&job=a after=9&job=a]" {
		t.Errorf("events %v, asked %v", got, asked)
	}
	if refused, ok := errors.AsType[*client.Error](last); !ok || refused.Status != http.StatusForbidden {
		t.Errorf("the end is %v", last)
	}
}

func TestEventsStopWithTheirConsumer(t *testing.T) {
	t.Parallel()
	left := make(chan struct{})
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "data: {\"seq\":1,\"type\":\"sweep\"}\nid: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(left)
	})
	for e, err := range c.Events(t.Context(), nil) {
		if err != nil || e.Seq != 1 || string(e.Raw) != `{"seq":1,"type":"sweep"}` {
			t.Fatalf("%+v, %v", e, err)
		}
		break
	}
	<-left
}

func TestAnEventThatIsNone(t *testing.T) {
	t.Parallel()
	c := answering(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "data: hello\n\n") })
	for e, err := range c.Events(t.Context(), nil) {
		if err == nil || !strings.Contains(err.Error(), "the daemon sent no event") {
			t.Fatalf("%+v, %v", e, err)
		}
	}
}
