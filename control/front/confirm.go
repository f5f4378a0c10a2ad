package front

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
)

// A link is a GET, and some GETs change something. Sec-Fetch-Site is "none" both for a link in a mail and for
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
	html, mozilla := strings.EqualFold(strings.TrimSpace(media), MediaHTML),
		strings.HasPrefix(h.Get("User-Agent"), "Mozilla/")
	return html || mozilla && h.Get("Origin") == ""
}

// isLoopback reports whether a browser treats name as its own machine.
func isLoopback(name string) bool {
	name = strings.ToLower(name)
	ip, err := netip.ParseAddr(name)
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || err == nil && ip.IsLoopback()
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

// ConfirmationToken returns the value that a confirmation page posts back to the same address.
func (r *Request) ConfirmationToken() string { return r.server.confirms.token(r.URL.RequestURI()) }

// IsForm reports whether a POST has the body of an HTML form; only the confirmation page sends one.
func (r *Request) IsForm() bool {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return r.Method == http.MethodPost && err == nil && media == formMedia
}

// Confirmed checks the form of a confirmation page. The nonce identifies the page.
func (r *Request) Confirmed() (nonce string, err error) {
	body, err := r.readAll()
	if err != nil {
		return "", err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil || len(form[confirmField]) != 1 {
		return "", notJSON()
	}
	nonce, ok := r.server.confirms.check(form.Get(confirmField), r.URL.RequestURI())
	if !ok {
		return "", Refuse(http.StatusForbidden, "This confirmation is too old, or is of another address: open the link again")
	}
	return nonce, nil
}
