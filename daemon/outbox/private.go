package outbox

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode"
)

// PrivateError means that a webhook leads to an address which is neither on the public Internet nor
// allowed.
type PrivateError struct{ Addr netip.Addr }

func (e *PrivateError) Error() string {
	return fmt.Sprintf("it leads to the address %s, which is not public; start the daemon with --webhook-allow %s to allow it", e.Addr, e.Addr)
}

// notPublic are the networks for which netip has no predicate.
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("100::/64"), netip.MustParsePrefix("2001::/23"),
	netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("fec0::/10"),
}

// mayReach reports whether a webhook may connect to an address.
func mayReach(addr netip.Addr, allow []netip.Prefix) bool {
	addr = addr.Unmap().WithZone("")
	has := func(prefix netip.Prefix) bool { return prefix.Contains(addr) }
	public := addr.IsGlobalUnicast() && !addr.IsPrivate() && !slices.ContainsFunc(notPublic, has)
	return public || slices.ContainsFunc(allow, has)
}

// control refuses a connection before it is made. It checks the address that is really connected
// to, after name resolution: an earlier lookup may have returned another one.
func control(allow []netip.Prefix) func(network, address string, _ syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("address %q: %w", address, err)
		}
		if !mayReach(at.Addr(), allow) {
			return &PrivateError{at.Addr().Unmap()}
		}
		return nil
	}
}

// ParseAllow parses addresses and networks, such as 10.0.0.0/8.
func ParseAllow(texts ...string) (allow []netip.Prefix, err error) {
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if addr, fails := netip.ParseAddr(text); fails == nil {
			addr = addr.Unmap().WithZone("")
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("%q is neither an address nor a network such as 10.0.0.0/8", text)
		}
		allow = append(allow, prefix.Masked())
	}
	return allow, nil
}

// CheckHost returns why a webhook cannot lead to a host, as far as its name tells: a literal
// address, or a name of this machine. Any other name is resolved and checked at connection time.
func CheckHost(host string, allow []netip.Prefix) error {
	addr, err := netip.ParseAddr(host)
	may := err != nil || mayReach(addr, allow)
	if local := strings.ToLower(strings.TrimSuffix(host, ".")); strings.HasSuffix("."+local, ".localhost") { // RFC 6761
		addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		may = mayReach(addr, allow) || mayReach(netip.IPv6Loopback(), allow)
	}
	if may {
		return nil
	}
	return &PrivateError{addr.Unmap()}
}

// CheckAddress returns why a text is not the address of a webhook.
func CheckAddress(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || strings.ContainsFunc(text, unicode.IsSpace):
		return errors.New("it is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("it does not begin with http:// or https://")
	case u.Hostname() == "":
		return errors.New("it has no host")
	case !possiblePort(u.Port()):
		return fmt.Errorf("the port %s is none", u.Port())
	case strings.Contains(text, "${"):
		return errors.New("of references it may have ${id} and ${params.NAME} alone")
	case u.User != nil:
		return errors.New("it has a user name or password")
	case u.Fragment != "":
		return errors.New("it has a fragment (#)")
	}
	for part := range strings.SplitSeq(u.Path, "/") {
		if part == "." || part == ".." {
			return fmt.Errorf("its path has the part %q and would lead elsewhere", part)
		}
	}
	return nil
}

// possiblePort reports whether a text is a port or empty.
func possiblePort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && port > 0
}
