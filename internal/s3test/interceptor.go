package s3test

import (
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
)

// Interceptor is a proxy of a server that may answer in its place. It is safe for concurrent use.
type Interceptor struct {
	URL string

	answer   atomic.Pointer[http.HandlerFunc]
	requests atomic.Int64
}

// NewInterceptor begins a Front that hands everything on, until the test ends.
func NewInterceptor(tb testing.TB, s *Server) *Interceptor {
	tb.Helper()
	to, err := url.Parse(s.URL())
	if err != nil {
		tb.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host // it is signed
		},
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // a server that is gone is what tests want
	}
	f := new(Interceptor)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.requests.Add(1)
		if answer := f.answer.Load(); answer != nil {
			(*answer)(w, r)
			if w.Header().Get(passOn) == "" {
				return
			}
			w.Header().Del(passOn)
		}
		proxy.ServeHTTP(w, r)
	}))
	tb.Cleanup(server.Close)
	f.URL = server.URL
	return f
}

// passOn is set by an answer that only changed the request.
const passOn = "X-Pass-On"

// PassOn has a request go to the server after all, as an answer has changed it.
func PassOn(w http.ResponseWriter) { w.Header().Set(passOn, "1") }

// Answer has each request answered; nil hands them on.
func (f *Interceptor) Answer(with http.HandlerFunc) {
	if with == nil {
		f.answer.Store(nil)
		return
	}
	f.answer.Store(&with)
}

// Refuse has each request answered with a status and a code, as servers of S3 do.
func (f *Interceptor) Refuse(status int, code string, header http.Header) {
	f.Answer(func(w http.ResponseWriter, _ *http.Request) {
		maps.Copy(w.Header(), header)
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`<?xml version="1.0" encoding="UTF-8"?><Error><Code>` + code +
			`</Code><Message>It was refused.</Message></Error>`))
	})
}

// Requests counts the requests.
func (f *Interceptor) Requests() int64 { return f.requests.Load() }
