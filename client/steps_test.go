package client_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

// Each method sends the request it is named after, with its arguments and nothing else.
func TestStepActionsAreSent(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 1)
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked <- r.Method + " " + strings.TrimPrefix(r.URL.RequestURI(), "/api/v1/operations/"+id) + " " + string(body)
		_,
			_ = io.WriteString(w,
			`{"success":true,"id":"`+id+`","action":"skip","step":"split","took_effect":true,"state":"queued"}`)
	})
	ctx, op, args := t.Context(), parsed(t), statefs.Args{Step: "split", By: "anna", Reason: "why"}
	const body = `{"step":"split","by":"anna","reason":"why"}`
	for want, call := range map[string]func(context.Context) (*client.Answer, error){
		"POST /skip " + body:    func(ctx context.Context) (*client.Answer, error) { return c.Steps(op).Skip(ctx, args) },
		"POST /approve " + body: func(ctx context.Context) (*client.Answer, error) { return c.Steps(op).Approve(ctx, args) },
		"POST /reject {}": func(ctx context.Context) (*client.Answer,
			error,
		) {
			return c.Steps(op).Reject(ctx, statefs.Args{})
		},
		`POST /set {"values":{"params.a":5}}`: func(ctx context.Context) (*client.Answer, error) {
			return c.Steps(op).Set(ctx, map[string]any{"params.a": 5}, statefs.Args{})
		},
		"POST /skip?wait=5s {}": func(ctx context.Context) (*client.Answer, error) {
			return c.Steps(op).Request(ctx, statefs.Skip, statefs.Args{}, 5*time.Second)
		},
	} {
		answer, err := call(ctx)
		if err != nil || answer.Step != "split" || !answer.InEffect() {
			t.Errorf("%s: %+v, %v", want, answer, err)
		}
		if got := <-asked; got != want {
			t.Errorf("asked %s, want %s", got, want)
		}
	}
	again, err := c.Steps(op).Retry(ctx, statefs.Args{Step: "split"}, 0)
	if got := <-asked; err != nil || again.Answer == nil || got != `POST /retry {"step":"split"}` {
		t.Errorf("retry: %+v, %v, asked %s", again, err, got)
	}
	if _, err := c.Steps(op).Set(ctx, map[string]any{"params.a": make(chan int)}, statefs.Args{}); err == nil {
		t.Error("a value that is no JSON was sent")
	}
}

func TestTheEndOfTheOutputOfAStep(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 1)
	whole := answering(t, func(w http.ResponseWriter, r *http.Request) { // as a proxy that knows no Range
		asked <- r.Header.Get("Range")
		_, _ = io.WriteString(w, r.URL.Query().Get("step")+" 0123456789")
	})
	part := answering(t, func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("Range")
		http.ServeContent(w, r, "log", time.Time{}, strings.NewReader(r.URL.Query().Get("step")+" 0123456789"))
	})
	for last, want := range map[int64][2]string{
		0: {"", "split 0123456789"}, 4: {"bytes=-4", "6789"}, 100: {"bytes=-100", "split 0123456789"},
	} {
		for _, c := range []*client.Client{whole, part} {
			log, err := c.Steps(parsed(t)).Log(t.Context(), "split", last)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(log)
			_ = log.Close()
			if err != nil || string(got) != want[1] {
				t.Errorf("the last %d bytes are %q, %v, want %q", last, got, err, want[1])
			}
			if got := <-asked; got != want[0] {
				t.Errorf("for the last %d bytes it asks for %q, want %q", last, got, want[0])
			}
		}
	}
	empty := answering(t, func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "log", time.Time{}, strings.NewReader(""))
	})
	log, err := empty.Steps(parsed(t)).Log(t.Context(), "split", 4)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(log); err != nil || len(got) > 0 || log.Close() != nil {
		t.Errorf("the end of nothing is %q, %v", got, err)
	}
}
