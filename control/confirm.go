package control

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/julienschmidt/httprouter"
)

// A link is a GET, and two GETs start or control something. Sec-Fetch-Site is "none" both for a link in a mail and for
// an address that a person typed. So a browser that navigates to such an address gets a page with a button.

// navigates reports whether a request may come from a link, a redirect or the address bar of a browser. Over plain http
// browsers send Sec-Fetch headers only to their own machine; for other hosts, if no tokens are configured, every
// request that looks like a browser's counts.
func (g *guard) navigates(r *http.Request) bool {
	h := r.Header
	if strings.EqualFold(h.Get("Sec-Fetch-Mode"), "navigate") || strings.EqualFold(h.Get("Sec-Fetch-Dest"), "document") {
		return true
	}
	if h.Get("Sec-Fetch-Site") != "" || len(g.tokens) > 0 || isLoopback(hostname(r.Host)) {
		return false
	}
	first, _, _ := strings.Cut(h.Get("Accept"), ",")
	media, _, _ := strings.Cut(first, ";")
	html, mozilla := strings.EqualFold(strings.TrimSpace(media), mediaHTML),
		strings.HasPrefix(h.Get("User-Agent"), "Mozilla/")
	return html || mozilla && h.Get("Origin") == ""
}

// isLoopback reports whether a browser treats name as its own machine.
func isLoopback(name string) bool {
	name = strings.ToLower(name)
	ip, err := netip.ParseAddr(name)
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || err == nil && ip.IsLoopback()
}

// confirmation is the data of the confirmation page.
type confirmation struct {
	Verb  string
	Rows  [][2]string
	Token string
}

const (
	// formMedia and confirmField are the media type and the field in which the page's button posts its token.
	formMedia    = "application/x-www-form-urlencoded"
	confirmField = "confirmation"
	// confirmTime is how long a page stays valid.
	confirmTime = 15 * time.Minute
)

// confirmer makes and checks the tokens of confirmation pages. A token is "EXPIRY.NONCE.MAC"; it is valid for one URL.
type confirmer struct{ key [32]byte }

func newConfirmer() *confirmer {
	c := new(confirmer)
	_, _ = rand.Read(c.key[:]) // never fails
	return c
}

func (c *confirmer) mac(claim, target string) string {
	h := hmac.New(sha256.New, c.key[:])
	_, _ = h.Write([]byte(claim + " " + target)) // never fails
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

func (c *confirmer) token(target string) string {
	claim := strconv.FormatInt(time.Now().Add(confirmTime).Unix(), 10) + "." + rand.Text()
	return claim + "." + c.mac(claim, target)
}

// check returns the nonce of a valid token. It identifies the page, so that a second click can be recognized.
func (c *confirmer) check(token, target string) (nonce string, ok bool) {
	end := strings.LastIndexByte(token, '.')
	if end < 0 || !hmac.Equal([]byte(token[end+1:]), []byte(c.mac(token[:end], target))) {
		return "", false
	}
	expiry, nonce, _ := strings.Cut(token[:end], ".")
	unix, err := strconv.ParseInt(expiry, 10, 64)
	return nonce, err == nil && time.Now().Before(time.Unix(unix, 0))
}

// isForm reports whether a POST has the body of an HTML form; only the confirmation page sends one.
func isForm(r *http.Request) bool {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return r.Method == http.MethodPost && err == nil && media == formMedia
}

// confirmed checks the form of a confirmation page.
func (s *Server) confirmed(w *responseWriter, r *http.Request) (nonce string, err error) {
	body, err := s.readAll(w, r)
	if err != nil {
		return "", err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil || len(form[confirmField]) != 1 {
		return "", notJSON()
	}
	nonce, ok := s.confirms.check(form.Get(confirmField), r.URL.RequestURI())
	if !ok {
		return "", refuse(http.StatusForbidden, "This confirmation is too old, or is of another address: open the link again")
	}
	return nonce, nil
}

// sendConfirmation sends the confirmation page.
func (s *Server) sendConfirmation(w *responseWriter, r *http.Request, p *page) error {
	p.Kind = "confirm"
	p.Confirm.Token = s.confirms.token(r.URL.RequestURI())
	h := w.Header()
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer, the Origin of the form would be null
	return s.sendPage(w, r, *p)
}

// confirmStart answers a navigation to GET /{group}/{job} with parameters.
func (s *Server) confirmStart(w *responseWriter, r *http.Request, p httprouter.Params) error {
	def, values, err := s.jobAndQuery(r, p)
	if err != nil {
		return err
	}
	if len(values) == 0 {
		return s.jobPage(w, r, def)
	}
	request, _, err := startOf(r, def, values)
	if err != nil {
		return err
	}
	c := &confirmation{Verb: "Start"}
	for name, value := range request.Params.All() {
		c.Rows = append(c.Rows, [2]string{name, value.Text()})
	}
	return s.sendConfirmation(w, r, &page{Title: "Start " + def.Address() + "?", Summary: def.Summary, Confirm: c})
}

// startConfirmed is POST /{group}/{job} from the page's button: it starts the operation that the GET described and
// redirects to its stream.
func (s *Server) startConfirmed(w *responseWriter, r *http.Request, p httprouter.Params) error {
	nonce, err := s.confirmed(w, r)
	if err != nil {
		return err
	}
	def, values, err := s.jobAndQuery(r, p)
	if err != nil {
		return err
	}
	request, format, err := startOf(r, def, values)
	if err != nil {
		return err
	}
	request.Options.IdempotencyKey = "page " + nonce // a second click starts nothing
	started, err := s.start(r, request)
	if err != nil {
		return err
	}
	id := started[0].Record.ID.String()
	w.Header().Set(operationHeader, id)
	w.Header().Set("Location", "../api/v1/operations/"+id+"/stream?format="+format)
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// confirmControl answers a navigation to GET /{group}/control with parameters.
func (s *Server) confirmControl(w *responseWriter, r *http.Request, p httprouter.Params) error {
	c, err := s.readControl(w, r, p)
	if err != nil || c == nil {
		return err
	}
	verb := strings.ToUpper(c.action[:1]) + c.action[1:]
	shown := &confirmation{Verb: verb, Rows: [][2]string{{"id", c.id.String()}, {"action", c.action}}}
	for _, name := range []string{"step", "force", "strict", "reason", "by"} {
		if c.values.Has(name) {
			shown.Rows = append(shown.Rows, [2]string{name, c.values.Get(name)})
		}
	}
	return s.sendConfirmation(w, r, &page{Title: verb + " an operation of " + p.ByName("group") + "?", Confirm: shown})
}
