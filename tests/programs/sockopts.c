/* All options of sockets, by level and number: what each takes, refuses and tells. With ALL in the environment those
 * that are left out, too. */
#define AREA "sockopts"
#include "check.h"
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>

/* What differs from one run or machine to the next: only its length is told. */
static int varies(int level, int name)
{
	static const int of_socket[] = { SO_SNDBUF, SO_RCVBUF, SO_PEERCRED, 49, 50, 55, 56, 57, 71, 73 };
	if (level == SOL_TCP)
		return name == TCP_INFO || name == TCP_TIMESTAMP || name == TCP_CC_INFO;
	if (level == SOL_SOCKET)
		for (unsigned i = 0; i < sizeof of_socket / sizeof *of_socket; i++)
			if (of_socket[i] == name)
				return 1;
	return 0;
}

static int get(char *to, int s, int level, int name)
{
	unsigned char v[256];
	socklen_t n = sizeof v;
	memset(v, 0xee, sizeof v);
	if (getsockopt(s, level, name, v, &n) < 0)
		return sprintf(to, "%s", strerrorname_np(errno));
	if (varies(level, name))
		return sprintf(to, "(%u)", n);
	if (n == 4)
		return sprintf(to, "%d", *(int *)v);
	int at = sprintf(to, "(%u)", n);
	for (unsigned i = 0; i < n && i < 16; i++)
		at += sprintf(to + at, "%02x", v[i]);
	return at;
}

static int set(char *to, int s, int level, int name, const void *v, socklen_t n)
{
	if (setsockopt(s, level, name, v, n) < 0)
		return sprintf(to, "%s", strerrorname_np(errno));
	return get(to, s, level, name);
}

static void walk_name(const char *who, int (*make)(void), const char *level_name, int level, int name)
{
	static const int values[] = { 1, 0, -1, 7, 300, 70000 };
	char line[1500], what[64];
	int at = 0, s = make();
	at += get(line, s, level, name);
	for (unsigned i = 0; i < sizeof values / sizeof *values; i++) {
		at += sprintf(line + at, " | %d: ", values[i]);
		at += set(line + at, s, level, name, &values[i], 4);
	}
	at += sprintf(line + at, " | byte: ");
	at += set(line + at, s, level, name, "\1", 1);
	at += sprintf(line + at, " | none: ");
	at += set(line + at, s, level, name, "", 0);
	at += sprintf(line + at, " | 8: ");
	at += set(line + at, s, level, name, "\1\0\0\0\2\0\0\0", 8);
	close(s);
	sprintf(what, "%s %s %d", who, level_name, name);
	say(what, "%s", line);
}

/* What the sandbox refuses, or the machine decides, or others check (23 and 33: tests/stack.d/opening.py): TCP's repair, keys, ULPs, saved SYNs, delays and limits of its
 * timers; BPF; source routes, extension headers, anycast, path MTUs; policies of IPsec. */
static int left_out(int level, int name)
{
	static const int of_socket[] = { 2, 18, 27, 28, 50, 51, 52, 68, 71, 80, 83, 84, -1 };
	static const int of_ip[] = { 3, 4, 5, 9, 16, 17, 22, 41, 48, 50, 52, 64, 65, 66, 67, -1 };
	static const int of_ipv6[] = { 1, 3, 4, 5, 6, 22, 24, 26, 30, 32, 34, 35, 36, 48, 50, 54, 55, 57, 59, 61, 64, 65,
				       68, 69, 72, 76, 77, -1 };
	static const int of_tcp[] = { 10, 11, 12, 13, 14, 19, 20, 21, 22, 23, 26, 29, 32, 33, 35, 43, 44, 45,
				      46, -1 };
	static const int none[] = { -1 };
	const int *l = level == SOL_SOCKET ? of_socket : level == SOL_IP ? of_ip : level == SOL_IPV6 ? of_ipv6 :
		       level == SOL_TCP ? of_tcp : none;
	while (*l >= 0 && *l != name)
		l++;
	return *l == name;
}

static void walk_level(const char *who, int (*make)(void), const char *n, int level, int last)
{
	int all = getenv("ALL") != NULL;
	for (int name = 0; name <= last; name++)
		if (all || !left_out(level, name))
			walk_name(who, make, n, level, name);
}

static void walk(const char *who, int (*make)(void))
{
	walk_level(who, make, "SOCKET", SOL_SOCKET, 84);
	walk_level(who, make, "IP", SOL_IP, 60);
	walk_level(who, make, "IPV6", SOL_IPV6, 84);
	walk_level(who, make, "TCP", SOL_TCP, 46);
	walk_level(who, make, "UDP", SOL_UDP, 2);
	for (int name = 100; name < 106; name++)
		walk_name(who, make, "UDP", SOL_UDP, name);
}

#define MAKER(name, ...) static int name(void) { return socket(__VA_ARGS__); }
MAKER(tcp4, AF_INET, SOCK_STREAM, 0)
MAKER(tcp6, AF_INET6, SOCK_STREAM, 0)
MAKER(udp4, AF_INET, SOCK_DGRAM, 0)
MAKER(udp6, AF_INET6, SOCK_DGRAM, 0)
MAKER(raw4, AF_INET, SOCK_RAW, 253)
MAKER(raw6, AF_INET6, SOCK_RAW, 253)
MAKER(local_stream, AF_UNIX, SOCK_STREAM, 0)
MAKER(local_datagram, AF_UNIX, SOCK_DGRAM, 0)
MAKER(packet, AF_PACKET, SOCK_RAW, 0)
MAKER(netlink, AF_NETLINK, SOCK_RAW, 0)

/* A connection's options, on the side that connected. */
static int connected(int family)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 b = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	void *to = family == AF_INET ? (void *)&a : (void *)&b;
	socklen_t n = family == AF_INET ? sizeof a : sizeof b;
	static int l[2], port[2];
	int i = family != AF_INET;
	if (!l[i]) {
		l[i] = socket(family, SOCK_STREAM, 0);
		bind(l[i], to, n);
		listen(l[i], 100);
		getsockname(l[i], to, &n);
		port[i] = family == AF_INET ? a.sin_port : b.sin6_port;
	}
	a.sin_port = b.sin6_port = port[i];
	int s = socket(family, SOCK_STREAM, 0);
	connect(s, to, n);
	close(accept(l[i], NULL, NULL));
	return s;
}
static int connected4(void) { return connected(AF_INET); }
static int connected6(void) { return connected(AF_INET6); }

static void of_tcp4(void) { walk("tcp4", tcp4); }
static void of_tcp6(void) { walk("tcp6", tcp6); }
static void of_udp4(void) { walk("udp4", udp4); }
static void of_udp6(void) { walk("udp6", udp6); }
static void of_raw(void) { walk("raw4", raw4); walk("raw6", raw6); }
static void of_unix(void)
{
	walk_level("stream", local_stream, "SOCKET", SOL_SOCKET, 84);
	walk_level("datagram", local_datagram, "SOCKET", SOL_SOCKET, 84);
	walk_level("stream", local_stream, "TCP", SOL_TCP, 2);
}
static void of_packet(void)
{
	walk_level("packet", packet, "SOCKET", SOL_SOCKET, 84);
}
static void of_netlink(void)
{
	walk_level("netlink", netlink, "SOCKET", SOL_SOCKET, 84);
}
static void of_connected(void)
{
	walk_level("connected4", connected4, "TCP", SOL_TCP, 46);
	walk_level("connected4", connected4, "IP", SOL_IP, 52);
	walk_level("connected6", connected6, "TCP", SOL_TCP, 46);
	walk_level("connected6", connected6, "IPV6", SOL_IPV6, 80);
}

/* Levels that are no protocol's of the socket. */
static void levels(void)
{
	static const int families[] = { AF_INET, AF_INET6, AF_UNIX }, kinds[] = { SOCK_STREAM, SOCK_DGRAM };
	static const int which[] = { 500, IPPROTO_TCP, IPPROTO_ICMP, IPPROTO_RAW, 2, 270 };
	for (int f = 0; f < 3; f++)
		for (int k = 0; k < 2; k++)
			for (int i = 0; i < 6; i++) {
				int s = socket(families[f], kinds[k], 0), v = 0;
				socklen_t n = 4;
				say("level", "%d %d %d", families[f], kinds[k], which[i]);
				if (kinds[k] != SOCK_STREAM || which[i] != IPPROTO_TCP) {
					T(getsockopt(s, which[i], 10, &v, &n));
					T(setsockopt(s, which[i], 10, &v, 4));
				}
				close(s);
			}
}

static const struct check all[] = {
	CHECK(levels),
	CHECK(of_tcp4), CHECK(of_tcp6), CHECK(of_udp4), CHECK(of_udp6), CHECK(of_raw), CHECK(of_unix),
	CHECK(of_packet), CHECK(of_netlink), CHECK(of_connected),
};
MAIN(all)
