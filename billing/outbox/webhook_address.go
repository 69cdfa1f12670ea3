package outbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
)

// errAddressRefused is for an endpoint inside the operator's own network: who
// may set an endpoint must not reach what only this machine can reach.
var errAddressRefused = errors.New("the address of the endpoint is not a public one")

// reserved are networks that are no place on the public internet, after the
// IANA special-purpose address registries, and one public address that clouds
// answer on themselves. In IPv6 only 2000::/3 is public to begin with.
var reserved = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
	"168.63.129.16/32", // Azure's host
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

var (
	globalIPv6 = netip.MustParsePrefix("2000::/3")
	// nat64 addresses carry an IPv4 address in their last four bytes (RFC 6052).
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
)

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// reached is the address that a packet ends at: IPv4 in IPv6 clothes is IPv4.
func reached(ip netip.Addr) netip.Addr {
	ip = ip.Unmap().WithZone("")
	if nat64.Contains(ip) {
		b := ip.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return ip
}

func within(networks []netip.Prefix, ip netip.Addr) bool {
	for _, network := range networks {
		if network.Contains(ip) {
			return true
		}
	}
	return false
}

// mayDial reports whether an address is public, or in a network that the
// operator allowed.
func mayDial(ip netip.Addr, allowed []netip.Prefix) bool {
	ip = reached(ip)
	if within(allowed, ip) {
		return true
	}
	return (ip.Is4() || globalIPv6.Contains(ip)) && !within(reserved, ip)
}

// guard refuses connections by the address that is really dialled, after the
// name was resolved: a name that resolves to something else a moment later
// changes nothing.
func guard(allowed []netip.Prefix) func(network, address string, _ syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		target, err := netip.ParseAddrPort(address)
		if err != nil || !mayDial(target.Addr(), allowed) {
			return errAddressRefused
		}
		return nil
	}
}

// CheckEndpoint says what is wrong with the URL of an endpoint, in a *ConfigError that
// does not repeat it: it may hold a secret of the receiver's. What its name resolves to
// is looked at in each try.
func (w *Webhook) CheckEndpoint(endpoint string) error {
	return checkEndpoint(endpoint, w.cfg.AllowHTTP, w.cfg.AllowNetworks)
}

func checkEndpoint(endpoint string, allowHTTP bool, allowed []netip.Prefix) error {
	switch badEndpoint(endpoint, allowHTTP) {
	case "":
	case notHTTPS:
		return wrong("WEBHOOK_URL", "must begin with https://; BILLING_WEBHOOK_HTTP=true allows http:// too")
	case badHost:
		return wrong("WEBHOOK_URL", "must name its host in ASCII letters, digits, hyphens and dots, a name with other letters by its xn-- form, or as an IP address")
	default:
		return wrong("WEBHOOK_URL", "must be like https://host/path, without a name, a password or a fragment")
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return wrong("WEBHOOK_URL", "can't be read")
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && !mayDial(ip, allowed) {
		return wrong("WEBHOOK_URL", "has the address %s, which is not public; BILLING_WEBHOOK_ALLOW names networks that may be sent to all the same", ip)
	}
	return nil
}

// Why no try of a URL could be good.
const (
	malformed = "endpoint_malformed"
	badHost   = "endpoint_host"
	notHTTPS  = "endpoint_not_https"
)

func badEndpoint(endpoint string, allowHTTP bool) string {
	u, err := url.Parse(endpoint)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Opaque != "" || u.Fragment != "" {
		return malformed
	}
	if !isHost(u.Hostname()) {
		return badHost
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !allowHTTP) {
		return notHTTPS
	}
	return ""
}

// isHost reports whether a name is one of the DNS or an IP address. A URL may hold any
// bytes there, also such as Postgres takes in no text: the name is part of the lane's.
func isHost(name string) bool {
	if ip, err := netip.ParseAddr(name); err == nil {
		return ip.Zone() == ""
	}
	name = strings.TrimSuffix(name, ".")
	if len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' || strings.ContainsFunc(label, noLabel) {
			return false
		}
	}
	return true
}

func noLabel(r rune) bool {
	return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
}

// Resolves asks where the name of an endpoint leads, and whether that may be sent to.
// The error is a *ConfigError if it may not.
func (w *Webhook) Resolves(ctx context.Context, endpoint string) error {
	host := hostOf(endpoint)
	list, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return fmt.Errorf("the name %s is not found", host)
	}
	for _, ip := range list {
		if mayDial(ip, w.cfg.AllowNetworks) {
			return nil
		}
	}
	return wrong("WEBHOOK_URL", "leads to %s, which is not public; BILLING_WEBHOOK_ALLOW names networks that may be sent to all the same", list[0])
}
