package front

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// guard decides which requests are allowed at all. The permissions of the unix socket decide who connects to it. A
// request over TCP may come from any web page that a browser on this machine shows, or from the network.
type guard struct {
	hosts  []string // lower case: name, which matches every port, or name:port
	tokens tokens
	cross  *http.CrossOriginProtection
}

func newGuard(hosts []string, tokens tokens) *guard {
	g := &guard{tokens: tokens, cross: http.NewCrossOriginProtection()}
	for _, host := range hosts {
		g.hosts = append(g.hosts, strings.ToLower(strings.TrimSuffix(host, ".")))
	}
	return g
}

// secure sets the headers of every answer: a browser may not execute, frame, cache or sniff it.
func secure(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
}

// local returns the local address of the connection of a request.
func local(ctx context.Context) net.Addr {
	addr, _ := ctx.Value(http.LocalAddrContextKey).(net.Addr)
	return addr
}

func overUnix(r *http.Request) bool {
	addr := local(r.Context())
	return addr != nil && addr.Network() == "unix"
}

// checkHost refuses unknown host names. With DNS rebinding, a page of another site resolves its own name to this
// address and is the same origin for the browser; only the Host header reveals it.
func (g *guard) checkHost(r *http.Request) error {
	if overUnix(r) || g.allowsHost(r.Host, local(r.Context())) {
		return nil
	}
	if r.Host == "" {
		return Refuse(http.StatusMisdirectedRequest,
			"The Host header is missing or empty: it must name this daemon, such as localhost")
	}
	return Refuse(http.StatusMisdirectedRequest,
		"The host %s is not one of this daemon's names; name it with --hosts if it is", Printable(r.Host, 100))
}

func (g *guard) allowsHost(host string, addr net.Addr) bool {
	host = strings.ToLower(host)
	name := hostname(host)
	if name == "" {
		return false
	}
	if name == "localhost" || slices.Contains(g.hosts, name) || slices.Contains(g.hosts, host) {
		return true
	}
	ip, err := netip.ParseAddr(name)
	if err != nil {
		return false
	}
	if ip.IsLoopback() {
		return true
	}
	at, ok := addr.(*net.TCPAddr)
	return ok && at.AddrPort().Addr().Unmap() == ip.Unmap()
}

// hostname returns host without port, brackets and trailing dot; "" when it is malformed.
func hostname(host string) string {
	name, port, err := net.SplitHostPort(host)
	switch {
	case err == nil && strings.Trim(port, "0123456789") != "":
		return ""
	case err != nil:
		name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	return strings.TrimSuffix(name, ".")
}

// checkSite refuses cross-site requests of browsers. http.CrossOriginProtection lets GET pass, so a GET that changes
// something is checked here, and more strictly.
func (g *guard) checkSite(r *http.Request, changes bool) error {
	foreign := Refuse(http.StatusForbidden, "A page of another site may not do this")
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		if g.cross.Check(r) != nil {
			return foreign
		}
		return nil
	case !changes:
		return nil
	}
	sites := r.Header.Values("Sec-Fetch-Site")
	for _, site := range sites {
		if site != "same-origin" && site != "none" {
			return foreign
		}
	}
	for _, origin := range r.Header.Values("Origin") {
		if !ownOrigin(origin, r.Host, len(sites) > 0) {
			return foreign
		}
	}
	return nil
}

// ownOrigin reports whether an Origin matches host. This daemon speaks only http, so https means either a proxy that
// terminates TLS in front of it, or another origin. Only the browser knows which: vouched means that it sent
// Sec-Fetch-Site, which no page can set.
func ownOrigin(origin, host string, vouched bool) bool {
	from, err := url.Parse(origin)
	if err != nil || from.Host == "" {
		return false
	}
	port := ":80"
	if from.Scheme == "https" {
		port = ":443"
	}
	known := from.Scheme == "http" || from.Scheme == "https" && vouched
	return known && strings.EqualFold(strings.TrimSuffix(from.Host, port), strings.TrimSuffix(host, port))
}

// checkToken requires a token if any is configured.
func (g *guard) checkToken(r *http.Request) error {
	if len(g.tokens) == 0 || overUnix(r) {
		return nil
	}
	if _, ok := g.tokens.lookup(r); ok {
		return nil
	}
	return Refuse(http.StatusUnauthorized,
		"A token is needed: send it as 'Authorization: Bearer TOKEN'").WithHeader("WWW-Authenticate", `Bearer realm="jobdir"`)
}

// checkPath refuses paths that the router and the client would interpret differently.
func checkPath(r *http.Request) error {
	switch {
	case !strings.HasPrefix(r.URL.Path, "/"):
		return Refuse(http.StatusBadRequest, "The target of the request is not a path")
	case strings.Contains(strings.ToLower(r.URL.EscapedPath()), "%2f"):
		return Refuse(http.StatusBadRequest, "The path has an encoded slash")
	case strings.ContainsFunc(r.URL.Path, func(c rune) bool { return c < ' ' || c == 0x7f || c == '\\' }):
		return Refuse(http.StatusBadRequest, "The path has a control character or a backslash")
	}
	for segment := range strings.SplitSeq(r.URL.Path, "/") {
		if segment == "." || segment == ".." {
			return Refuse(http.StatusBadRequest, "The path has a segment that leads elsewhere")
		}
	}
	return nil
}
