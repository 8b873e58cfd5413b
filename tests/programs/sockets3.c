/* What few programs ask of sockets: offsets of peeks, filters, programs that choose among those at a port. */
#define AREA "sockets3"
#include "check.h"
#include <arpa/inet.h>
#include <linux/errqueue.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <poll.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>

#ifndef SO_PEEK_OFF
#define SO_PEEK_OFF 42
#endif
#define N(a) (sizeof(a) / sizeof *(a))

static int set_int(int s, int level, int name, int v)
{
	return setsockopt(s, level, name, &v, sizeof v);
}

static int get_int(int s, int level, int name)
{
	int v = -77;
	socklen_t n = sizeof v;
	return getsockopt(s, level, name, &v, &n) < 0 ? -1000 - errno : v;
}

/* An address of this host, with a port that is free or the one given. */
static struct sockaddr_in at(int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = { htonl(INADDR_LOOPBACK) } };
	return a;
}

static int bound(int kind, int *port)
{
	int s = socket(AF_INET, kind, 0);
	struct sockaddr_in a = at(*port);
	socklen_t n = sizeof a;
	set_int(s, SOL_SOCKET, SO_REUSEADDR, 1);
	if (bind(s, (void *)&a, sizeof a) < 0)
		say("bind", "%s", strerrorname_np(errno));
	getsockname(s, (void *)&a, &n);
	*port = ntohs(a.sin_port);
	return s;
}

static int connected(int kind, int port)
{
	int s = socket(AF_INET, kind, 0);
	struct sockaddr_in a = at(port);
	if (connect(s, (void *)&a, sizeof a) < 0)
		say("connect", "%s", strerrorname_np(errno));
	return s;
}

/* What one receive gives. */
static void peeked(const char *what, int s, int room, int flags)
{
	char b[200];
	memset(b, '.', sizeof b);
	struct iovec v = { b, room };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	int n = recvmsg(s, &m, flags | MSG_DONTWAIT);
	if (n < 0)
		say(what, "%s, offset %d", strerrorname_np(errno), get_int(s, SOL_SOCKET, SO_PEEK_OFF));
	else
		say(what, "%d \"%.*s\" %#x, offset %d", n, n < room ? n : room, b, m.msg_flags,
		    get_int(s, SOL_SOCKET, SO_PEEK_OFF));
}

static void messages(int from, int to)
{
	say("at first", "%d", get_int(to, SOL_SOCKET, SO_PEEK_OFF));
	send(from, "first", 5, 0);
	send(from, "", 0, 0);
	send(from, "second", 6, 0);
	send(from, "x", 1, 0);
	ms(20);
	peeked("without", to, 3, MSG_PEEK);
	T(set_int(to, SOL_SOCKET, SO_PEEK_OFF, 0));
	peeked("of the first", to, 3, MSG_PEEK);
	peeked("its rest", to, 30, MSG_PEEK);
	peeked("what follows", to, 30, MSG_PEEK);
	peeked("and again", to, 2, MSG_PEEK);
	peeked("its rest exactly", to, 4, MSG_PEEK);
	peeked("the last", to, 30, MSG_PEEK | MSG_TRUNC);
	peeked("past all", to, 30, MSG_PEEK);
	peeked("a read", to, 2, 0);
	peeked("a read that says all", to, 0, MSG_TRUNC);
	T(set_int(to, SOL_SOCKET, SO_PEEK_OFF, 4));
	peeked("in the middle", to, 1, MSG_PEEK | MSG_TRUNC);
	T(set_int(to, SOL_SOCKET, SO_PEEK_OFF, -1));
	peeked("none any more", to, 30, MSG_PEEK);
	T(set_int(to, SOL_SOCKET, SO_PEEK_OFF, -7));
	peeked("less than none", to, 30, MSG_PEEK);
	T(set_int(to, SOL_SOCKET, SO_PEEK_OFF, 0));
	peeked("read", to, 30, 0);
	peeked("read too", to, 30, 0);
	peeked("nothing", to, 30, MSG_PEEK);
}

static void bytes_of(int from, int to)
{
	say("at first", "%d", get_int(to, SOL_SOCKET, SO_PEEK_OFF));
	T(set_int(to, SOL_SOCKET, SO_PEEK_OFF, 2));
	peeked("nothing", to, 3, MSG_PEEK);
	send(from, "abcdefghij", 10, 0);
	ms(20);
	peeked("from 2", to, 3, MSG_PEEK);
	peeked("from 5", to, 3, MSG_PEEK);
	send(from, "klm", 3, 0);
	ms(20);
	peeked("from 8", to, 30, MSG_PEEK);
	peeked("past all", to, 30, MSG_PEEK);
	peeked("read", to, 4, 0);
	peeked("past all", to, 30, MSG_PEEK);
	T(set_int(to, SOL_SOCKET, SO_PEEK_OFF, 1));
	peeked("from 1", to, 2, MSG_PEEK);
	peeked("read 6", to, 6, 0);
	peeked("from 0", to, 1, MSG_PEEK);
	T(set_int(to, SOL_SOCKET, SO_PEEK_OFF, -1));
	peeked("without", to, 2, MSG_PEEK);
	T(set_int(to, SOL_SOCKET, SO_PEEK_OFF, 1));
	T(shutdown(from, SHUT_WR));
	ms(20);
	peeked("the rest", to, 20, MSG_PEEK);
	peeked("the end", to, 20, MSG_PEEK);
	peeked("read all", to, 20, 0);
	peeked("the end", to, 20, MSG_PEEK);
}

static void peeks_unix(void)
{
	int s[2];
	socketpair(AF_UNIX, SOCK_DGRAM, 0, s);
	messages(s[0], s[1]);
	socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s);
	T(set_int(s[1], SOL_SOCKET, SO_PEEK_OFF, 2));
	send(s[0], "abc", 3, 0);
	send(s[0], "defg", 4, 0);
	peeked("packet", s[1], 9, MSG_PEEK);
	peeked("packet", s[1], 2, MSG_PEEK);
	peeked("packet", s[1], 9, MSG_PEEK);
	peeked("packet", s[1], 9, MSG_PEEK);
	socketpair(AF_UNIX, SOCK_STREAM, 0, s);
	bytes_of(s[0], s[1]);
}

static void peeks_udp(void)
{
	int port = 0, to = bound(SOCK_DGRAM, &port);
	messages(connected(SOCK_DGRAM, port), to);
	int raw = socket(AF_INET, SOCK_RAW, IPPROTO_UDP);
	T(raw < 0 ? 0 : set_int(raw, SOL_SOCKET, SO_PEEK_OFF, 0));
	say("raw", "%d", raw < 0 ? -1000 - EOPNOTSUPP : get_int(raw, SOL_SOCKET, SO_PEEK_OFF));
}

static void peeks_tcp(void)
{
	int port = 0, l = bound(SOCK_STREAM, &port);
	listen(l, 5);
	int c = connected(SOCK_STREAM, port), a = accept(l, NULL, NULL);
	bytes_of(c, a);
	T(set_int(l, SOL_SOCKET, SO_PEEK_OFF, 3));
	connected(SOCK_STREAM, port);
	a = accept(l, NULL, NULL);
	say("as its listener", "%d", get_int(a, SOL_SOCKET, SO_PEEK_OFF));
}

/* A peek that waits is woken by what comes behind its offset. */
static void peeks_wait(void)
{
	int s[2];
	char b[8];
	socketpair(AF_UNIX, SOCK_STREAM, 0, s);
	write(s[1], "ab", 2);
	set_int(s[0], SOL_SOCKET, SO_PEEK_OFF, 3);
	pid_t p = fork();
	if (p == 0) {
		ms(50);
		write(s[1], "c", 1);
		ms(50);
		write(s[1], "d", 1);
		_exit(0);
	}
	T(recv(s[0], b, 8, MSG_PEEK));
	Y(b[0] == 'd');
	waitpid(p, NULL, 0);
}

static int attach(int s, const struct sock_filter *f, int n)
{
	struct sock_fprog p = { n, (void *)f };
	return setsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER, &p, sizeof p);
}

/* All, nothing, so many bytes. */
static const struct sock_filter all[] = { BPF_STMT(BPF_RET | BPF_K, ~0u) };
static const struct sock_filter nothing[] = { BPF_STMT(BPF_RET | BPF_K, 0) };

static void got(const char *what, int s)
{
	char b[200], line[400];
	int at = 0;
	for (;;) {
		int n = recv(s, b, sizeof b, MSG_DONTWAIT | MSG_TRUNC);
		if (n < 0)
			break;
		at += sprintf(line + at, " \"%.*s\"", n, b);
	}
	line[at] = 0;
	say(what, "%s", line);
}

static void keeping(void)
{
	int s = socket(AF_INET, SOCK_DGRAM, 0);
	struct sock_filter f[3], big[4097];
	struct sock_fprog p = { 1, (void *)all };
	socklen_t n;
	n = 0;
	T(getsockopt(s, SOL_SOCKET, SO_GET_FILTER, f, &n));
	T(n);
	n = 3;
	T(getsockopt(s, SOL_SOCKET, SO_GET_FILTER, f, &n));
	T(n);
	T(setsockopt(s, SOL_SOCKET, SO_DETACH_FILTER, &n, 4));
	T(setsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER, &p, 8));
	T(setsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER, &p, 20));
	T(attach(s, all, 0));
	T(attach(s, NULL, 1));
	T(attach(s, big, 4097));
	T(attach(s, (void *)16, 1));
	for (unsigned i = 0; i < N(big); i++)
		big[i] = all[0];
	T(attach(s, big, 4096));
	struct sock_filter bad[] = { BPF_STMT(BPF_LD | BPF_IMM, 1) };
	T(attach(s, bad, 1));
	struct sock_filter two[] = { BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0), BPF_STMT(BPF_RET | BPF_A, 0) };
	T(attach(s, two, 2));
	n = 0;
	T(getsockopt(s, SOL_SOCKET, SO_GET_FILTER, f, &n));
	T(n);
	n = 1;
	T(getsockopt(s, SOL_SOCKET, SO_GET_FILTER, f, &n));
	T(n);
	n = 3;
	memset(f, 0, sizeof f);
	T(getsockopt(s, SOL_SOCKET, SO_GET_FILTER, f, &n));
	T(n);
	Y(!memcmp(f, two, sizeof two));
	T(get_int(s, SOL_SOCKET, SO_LOCK_FILTER));
	T(set_int(s, SOL_SOCKET, SO_LOCK_FILTER, 0));
	T(set_int(s, SOL_SOCKET, SO_LOCK_FILTER, 1));
	T(set_int(s, SOL_SOCKET, SO_LOCK_FILTER, 0));
	T(attach(s, all, 1));
	T(set_int(s, SOL_SOCKET, SO_DETACH_FILTER, 0));
	T(set_int(s, SOL_SOCKET, SO_ATTACH_BPF, 1));
	T(setsockopt(s, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &p, sizeof p));
	T(setsockopt(s, SOL_SOCKET, SO_DETACH_FILTER, &n, 3));
	int t = socket(AF_INET, SOCK_DGRAM, 0);
	T(attach(t, all, 1));
	T(set_int(t, SOL_SOCKET, SO_DETACH_FILTER, 0));
	T(set_int(t, SOL_SOCKET, SO_DETACH_FILTER, 0));
	T(set_int(t, SOL_SOCKET, SO_ATTACH_BPF, -1));
	T(set_int(t, SOL_SOCKET, SO_ATTACH_BPF, t));
	T(setsockopt(t, SOL_SOCKET, SO_ATTACH_BPF, &p, 8));
}

/* The first byte of a datagram decides: a: all, b: nothing, c: two bytes, d: none of it. */
static const struct sock_filter by_first[] = {
	BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 'b', 4, 0),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 'c', 2, 0),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 'd', 0, 2),
	BPF_STMT(BPF_RET | BPF_K, 1),
	BPF_STMT(BPF_RET | BPF_K, 2),
	BPF_STMT(BPF_RET | BPF_K, 0),
	BPF_STMT(BPF_RET | BPF_K, ~0u),
};

static void filters_unix(void)
{
	int s[2];
	socketpair(AF_UNIX, SOCK_DGRAM, 0, s);
	T(attach(s[1], by_first, N(by_first)));
	T(send(s[0], "allthis", 7, 0));
	T(send(s[0], "boring", 6, 0));
	T(send(s[0], "cutthis", 7, 0));
	T(send(s[0], "drop", 4, 0));
	T(send(s[0], "", 0, 0));
	got("comes", s[1]);
	T(set_int(s[1], SOL_SOCKET, SO_DETACH_FILTER, 0));
	send(s[0], "boring", 6, 0);
	got("without", s[1]);
	socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s);
	T(attach(s[1], nothing, 1));
	T(send(s[0], "x", 1, 0));
	got("packets", s[1]);
	socketpair(AF_UNIX, SOCK_STREAM, 0, s);
	T(attach(s[1], nothing, 1));
	T(send(s[0], "x", 1, 0));
	got("a stream has none", s[1]);
	/* It has no device and no protocol. */
	static const long ext[] = { SKF_AD_PROTOCOL, SKF_AD_PKTTYPE, SKF_AD_IFINDEX, SKF_AD_HATYPE, SKF_AD_MARK };
	for (unsigned i = 0; i < N(ext); i++) {
		struct sock_filter f[] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + ext[i]),
					   BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, 1), BPF_STMT(BPF_RET | BPF_A, 0) };
		socketpair(AF_UNIX, SOCK_DGRAM, 0, s);
		attach(s[1], f, 3);
		send(s[0], "abcdef", 6, 0);
		got("extension", s[1]);
	}
}

/* Offsets in a datagram of UDP: its header comes first; IP's lies at SKF_NET_OFF. */
static void filters_udp(void)
{
	int port = 0, to = bound(SOCK_DGRAM, &port), from = connected(SOCK_DGRAM, port);
	static const struct { int size, off; const char *what; } loads[] = {
		{ BPF_H, 4, "length" }, { BPF_B, 8, "first byte" }, { BPF_B, SKF_NET_OFF, "version" },
		{ BPF_B, SKF_NET_OFF + 9, "protocol" }, { BPF_W, SKF_NET_OFF + 16, "destination" },
		{ BPF_B, SKF_NET_OFF + 28, "payload" }, { BPF_H, SKF_AD_OFF + SKF_AD_PROTOCOL + 2, "no extension" },
		{ BPF_W, SKF_AD_OFF + SKF_AD_PROTOCOL, "ether type" }, { BPF_W, SKF_AD_OFF + SKF_AD_PKTTYPE, "kind" },
		{ BPF_W, SKF_AD_OFF + SKF_AD_IFINDEX, "device" }, { BPF_W, SKF_AD_OFF + SKF_AD_HATYPE, "hardware" },
		{ BPF_B, SKF_LL_OFF + 12, "link" }, { BPF_B, 100, "too far" },
	};
	/* The number that is loaded, less than 100000 and as it is, is how much comes. */
	for (unsigned i = 0; i < N(loads); i++) {
		struct sock_filter f[] = { BPF_STMT(BPF_LD | loads[i].size | BPF_ABS, loads[i].off),
					   BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf), BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, 9),
					   BPF_STMT(BPF_RET | BPF_A, 0) };
		int r = attach(to, f, N(f));
		send(from, "abcdefghijklmnopqrstuvwxyz", 26, 0);
		ms(5);
		say("loads", "%s %d", loads[i].what, r);
		got(loads[i].what, to);
	}
	T(attach(to, nothing, 1));
	T(send(from, "x", 1, 0));
	T(send(from, "y", 1, 0));
	got("nothing", to);
	set_int(to, SOL_SOCKET, SO_RXQ_OVFL, 1);
	T(set_int(to, SOL_SOCKET, SO_DETACH_FILTER, 0));
	send(from, "z", 1, 0);
	char b[9], c[64];
	struct iovec v = { b, sizeof b };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = c, .msg_controllen = sizeof c };
	T(recvmsg(to, &m, 0));
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	say("lost", "%d", h ? *(int *)CMSG_DATA(h) : -1);
}

static void filters_raw(void)
{
	int s = socket(AF_INET, SOCK_RAW, IPPROTO_UDP);
	if (s < 0) {
		say("no right", "%s", strerrorname_np(errno));
		return;
	}
	/* What is sent to one port, of which 30 bytes are wanted. */
	int port = 0, to = bound(SOCK_DGRAM, &port), from = connected(SOCK_DGRAM, port);
	struct sock_filter f[] = { BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0), BPF_STMT(BPF_LD | BPF_H | BPF_IND, 2),
				   BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, port, 0, 1), BPF_STMT(BPF_RET | BPF_K, 30),
				   BPF_STMT(BPF_RET | BPF_K, 0) };
	T(attach(s, f, N(f)));
	T(send(from, "abcdef", 6, 0));
	char b[100];
	T(recv(s, b, sizeof b, 0));
	S(b + 28, 2);
	(void)to;
}

/* Of TCP a segment that is filtered is lost: it comes when there is no filter any more. */
static void filters_tcp(void)
{
	int port = 0, l = bound(SOCK_STREAM, &port);
	/* All but segments with bytes. */
	struct sock_filter f[] = { BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 12), BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 2),
				   BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0x3c), BPF_STMT(BPF_MISC | BPF_TAX, 0),
				   BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 0, 1),
				   BPF_STMT(BPF_RET | BPF_K, ~0u), BPF_STMT(BPF_RET | BPF_K, 0) };
	T(attach(l, f, N(f)));
	T(listen(l, 5));
	int c = connected(SOCK_STREAM, port), a = accept(l, NULL, NULL);
	struct sock_filter g[20];
	socklen_t n = N(g);
	T(getsockopt(a, SOL_SOCKET, SO_GET_FILTER, g, &n));
	T(n);
	T(send(c, "lost", 4, 0));
	struct pollfd p = { a, POLLIN };
	T(poll(&p, 1, 100));
	T(send(a, "back", 4, 0));
	char b[9];
	T(recv(c, b, 9, 0));
	T(set_int(a, SOL_SOCKET, SO_DETACH_FILTER, 0));
	T(poll(&p, 1, 3000));
	T(recv(a, b, 9, 0));
	S(b, 4);
	close(c);
	close(a);
	/* A listener that takes no SYN. */
	T(attach(l, nothing, 1));
	c = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	struct sockaddr_in to = at(port);
	T(connect(c, (void *)&to, sizeof to));
	p.fd = c, p.events = POLLOUT;
	T(poll(&p, 1, 300));
	T(set_int(l, SOL_SOCKET, SO_DETACH_FILTER, 0));
	T(poll(&p, 1, 4000));
	T(get_int(c, SOL_SOCKET, SO_ERROR));
}

static void saved_syn(void)
{
	int port = 0, l = bound(SOCK_STREAM, &port);
	unsigned char b[200];
	socklen_t n;
	T(set_int(l, SOL_TCP, TCP_SAVE_SYN, -1));
	T(set_int(l, SOL_TCP, TCP_SAVE_SYN, 3));
	T(set_int(l, SOL_TCP, TCP_SAVED_SYN, 1));
	T(get_int(l, SOL_TCP, TCP_SAVE_SYN));
	listen(l, 5);
	connected(SOCK_STREAM, port);
	int a = accept(l, NULL, NULL);
	n = sizeof b;
	T(getsockopt(a, SOL_TCP, TCP_SAVED_SYN, b, &n));
	T(n);
	T(set_int(l, SOL_TCP, TCP_SAVE_SYN, 1));
	T(get_int(l, SOL_TCP, TCP_SAVE_SYN));
	connected(SOCK_STREAM, port);
	a = accept(l, NULL, NULL);
	n = 5;
	T(getsockopt(a, SOL_TCP, TCP_SAVED_SYN, b, &n));
	T(n);
	n = sizeof b;
	T(getsockopt(a, SOL_TCP, TCP_SAVED_SYN, b, &n));
	T(n);
	struct iphdr *ip = (void *)b;
	struct tcphdr *tcp = (void *)(b + 20);
	say("ip", "%d %d %d %d %d %#x %#x", ip->version, ip->ihl, ntohs(ip->tot_len), ip->ttl, ip->protocol, ntohl(ip->saddr),
	    ntohl(ip->daddr));
	say("tcp", "%d %d %d %d %d %d", ntohs(tcp->dest) == port, tcp->doff, tcp->syn, tcp->ack, tcp->urg, tcp->fin);
	S(b + 40, 6);
	n = sizeof b;
	T(getsockopt(a, SOL_TCP, TCP_SAVED_SYN, b, &n));
	T(n);
	T(set_int(a, SOL_TCP, 37, -1));
	T(set_int(a, SOL_TCP, 37, 1 << 28));
	T(set_int(a, SOL_TCP, 37, 5000));
	T(get_int(a, SOL_TCP, 37));
	T(set_int(a, SOL_SOCKET, 73, -1));
}

/* Of several at a port a program chooses; what it says that is too much chooses none. */
static const struct sock_filter by_digit[] = {
	BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0),
	BPF_STMT(BPF_ALU | BPF_SUB | BPF_K, '0'),
	BPF_STMT(BPF_RET | BPF_A, 0),
};

static int choose(int s, const struct sock_filter *f, int n)
{
	struct sock_fprog p = { n, (void *)f };
	return setsockopt(s, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &p, sizeof p);
}

static int shares(int kind, int port)
{
	int s = socket(AF_INET, kind, 0);
	struct sockaddr_in a = at(port);
	set_int(s, SOL_SOCKET, SO_REUSEPORT, 1);
	if (bind(s, (void *)&a, sizeof a) < 0)
		say("bind", "%s", strerrorname_np(errno));
	return s;
}

static int port_of(int s)
{
	struct sockaddr_in a;
	socklen_t n = sizeof a;
	getsockname(s, (void *)&a, &n);
	return ntohs(a.sin_port);
}

static void chosen_udp(void)
{
	int alone = socket(AF_INET, SOCK_DGRAM, 0), s[4], port = 0;
	T(choose(alone, by_digit, 3));
	T(set_int(alone, SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, 0));
	set_int(alone, SOL_SOCKET, SO_REUSEPORT, 1);
	T(set_int(alone, SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, 0));
	T(choose(alone, by_digit, 3));
	T(set_int(alone, SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, 0));
	T(set_int(alone, SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, 0));
	T(set_int(alone, SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, alone));
	int own = bound(SOCK_DGRAM, &(int){ 0 });
	T(choose(own, by_digit, 3));
	set_int(own, SOL_SOCKET, SO_REUSEPORT, 1);
	T(choose(own, by_digit, 3));
	for (int i = 0; i < 4; i++) {
		s[i] = shares(SOCK_DGRAM, port);
		port = port_of(s[i]);
	}
	T(choose(s[2], by_digit, 3));
	int c = connected(SOCK_DGRAM, port);
	for (int i = 0; i < 4; i++) {
		char b[] = { '3' - i, 'x' };
		send(c, b, 2, 0);
	}
	ms(20);
	for (int i = 0; i < 4; i++)
		got("gets", s[i]);
	/* The last takes the place of one that goes. */
	close(s[1]);
	send(c, "1", 1, 0);
	send(c, "0", 1, 0);
	ms(20);
	got("0", s[0]);
	got("2", s[2]);
	got("3", s[3]);
	send(c, "9", 1, 0);
	ms(20);
	int n = 0;
	char b[9];
	for (int i = 0; i < 4; i++)
		n += i != 1 && recv(s[i], b, 9, MSG_DONTWAIT) > 0;
	T(n);
	T(set_int(s[0], SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, 0));
	/* Without a program all from one port goes to one. */
	for (int i = 0; i < 20; i++)
		send(c, "x", 1, 0);
	ms(20);
	for (int i = 0; i < 4; i++) {
		int k = 0;
		while (i != 1 && recv(s[i], b, 9, MSG_DONTWAIT) > 0)
			k++;
		if (k)
			say("all of them", "%d", k);
	}
}

static void chosen_tcp(void)
{
	int s[3], port = 0;
	struct sock_filter second[] = { BPF_STMT(BPF_RET | BPF_K, 1) };
	for (int i = 0; i < 3; i++) {
		s[i] = shares(SOCK_STREAM, port);
		port = port_of(s[i]);
		if (i == 0)
			T(choose(s[i], second, 1));
		listen(s[i], 5);
		set_int(s[i], SOL_SOCKET, SO_RCVTIMEO, 0);
	}
	for (int i = 0; i < 4; i++)
		connected(SOCK_STREAM, port);
	for (int i = 0; i < 3; i++) {
		int n = 0;
		struct pollfd p = { s[i], POLLIN };
		while (poll(&p, 1, 20) > 0 && accept(s[i], NULL, NULL) >= 0)
			n++;
		say("accepts", "%d: %d", i, n);
	}
	int l = bound(SOCK_STREAM, &(int){ 0 });
	T(choose(l, second, 1));
	listen(l, 1);
	T(choose(l, second, 1));
}

/* Two that share by SO_REUSEADDR alone: the newest gets all. */
static void newest(void)
{
	int port = 0, a = bound(SOCK_DGRAM, &port), b = bound(SOCK_DGRAM, &port), c = connected(SOCK_DGRAM, port);
	for (int i = 0; i < 4; i++)
		send(c, "x", 1, 0);
	ms(20);
	got("older", a);
	got("newer", b);
	close(b);
	send(c, "y", 1, 0);
	ms(20);
	got("older", a);
}

/* What the error queue tells of what was sent. */
static void steps(const char *what, int s)
{
	for (int i = 0; i < 12; i++) {
		char b[300], c[300];
		struct iovec v = { b, sizeof b };
		struct sockaddr_in from;
		struct msghdr m = { &from, sizeof from, &v, 1, c, sizeof c, 0 };
		struct pollfd p = { s, 0 };
		poll(&p, 1, 100);
		memset(c, 0, sizeof c);
		int n = recvmsg(s, &m, MSG_ERRQUEUE | MSG_DONTWAIT);
		if (n < 0) {
			say(what, "%s", strerrorname_np(errno));
			return;
		}
		int stamp = 0, others = 0;
		struct sock_extended_err e = { 0 };
		for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h))
			if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SO_TIMESTAMPING)
				stamp = ((struct timespec *)CMSG_DATA(h))->tv_sec > 1000000;
			else if (h->cmsg_level == SOL_IP && h->cmsg_type == IP_RECVERR)
				memcpy(&e, CMSG_DATA(h), sizeof e);
			else
				others++;
		/* With data the headers are as the device has them. */
		say(what, "%d bytes, \"%.*s\", flags %#x, name %u, stamp %d, others %d: %d %d %d, info %d, data %d", n, n > 6 ? 6 : n,
		    n > 6 ? b + n - 6 : b, m.msg_flags, m.msg_namelen, stamp, others, e.ee_errno, e.ee_origin, e.ee_code, e.ee_info,
		    e.ee_data);
	}
}

/* TX_SOFTWARE 2, SOFTWARE 16, OPT_ID 128, TX_SCHED 256, TX_ACK 512, OPT_CMSG 1024, OPT_TSONLY 2048, OPT_ID_TCP 65536. */
static void stamped_tcp(void)
{
	int port = 0, l = bound(SOCK_STREAM, &port);
	listen(l, 5);
	int c = socket(AF_INET, SOCK_STREAM, 0);
	T(set_int(c, SOL_SOCKET, SO_TIMESTAMPING, 2 | 16 | 128));
	T(set_int(l, SOL_SOCKET, SO_TIMESTAMPING, 2 | 16 | 128));
	T(set_int(c, SOL_SOCKET, SO_TIMESTAMPING, 2 | 16));
	struct sockaddr_in to = at(port);
	connect(c, (void *)&to, sizeof to);
	int a = accept(l, NULL, NULL);
	T(set_int(a, SOL_TCP, TCP_QUICKACK, 1));
	steps("none", c);
	T(send(c, "before", 6, 0));
	ms(20);
	steps("without numbers", c);
	T(set_int(c, SOL_SOCKET, SO_TIMESTAMPING, 2 | 16 | 128 | 256 | 512 | 2048));
	T(send(c, "0123456789", 10, 0));
	ms(60);
	struct pollfd p = { c, POLLIN };
	T(poll(&p, 1, 100));
	T(p.revents);
	steps("ten bytes", c);
	T(send(c, "abcde", 5, 0));
	ms(60);
	steps("five more", c);
	T(poll(&p, 1, 0));
	T(p.revents);
	T(set_int(c, SOL_SOCKET, SO_TIMESTAMPING, 16 | 128 | 512));
	T(send(c, "with data", 9, 0));
	ms(60);
	steps("data", c);
	T(set_int(c, SOL_SOCKET, SO_TIMESTAMPING, 16 | 256));
	T(send(c, "with data", 9, 0));
	ms(60);
	steps("scheduled", c);
	T(set_int(c, SOL_SOCKET, SO_TIMESTAMPING, 16 | 128 | 2048 | 65536));
	union { char b[CMSG_SPACE(4)]; struct cmsghdr h; } u = { .h = { CMSG_LEN(4), SOL_SOCKET, SO_TIMESTAMPING } };
	*(int *)CMSG_DATA(&u.h) = 512;
	struct iovec v = { "message", 7 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &u, .msg_controllen = sizeof u };
	T(sendmsg(c, &m, 0));
	ms(60);
	steps("one alone", c);
	T(send(c, "x", 1, 0));
	ms(60);
	steps("no other", c);
	/* Without SOFTWARE times are not told, but that it went is. */
	T(set_int(c, SOL_SOCKET, SO_TIMESTAMPING, 2 | 2048));
	T(send(c, "x", 1, 0));
	ms(20);
	steps("no times", c);
	T(set_int(c, SOL_SOCKET, SO_TIMESTAMPING, 0));
	T(send(c, "x", 1, 0));
	steps("off", c);
	char b[99];
	T(recv(a, b, sizeof b, 0));
	T(recv(c, b, 9, MSG_ERRQUEUE));
}

/* Devices that come and go are told of: none does. */
static void uevents(void)
{
	int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);
	Y(s >= 0);
	int on = 1, n = 0;
	socklen_t len = sizeof n;
	T(setsockopt(s, SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
	T(getsockopt(s, SOL_SOCKET, SO_PROTOCOL, &n, &len));
	T(n);
	struct sockaddr_nl a = { .nl_family = AF_NETLINK, .nl_groups = 2 };
	T(bind(s, (struct sockaddr *)&a, sizeof a));
	len = sizeof a;
	T(getsockname(s, (struct sockaddr *)&a, &len));
	T(a.nl_groups);
	Y(a.nl_pid == getpid());
	char b[256];
	T(recv(s, b, sizeof b, 0));
	struct pollfd p = { s, POLLIN | POLLOUT };
	T(poll(&p, 1, 0));
	T(p.revents);
	close(s);
}

int main(int argc, char **argv)
{
	static const struct check list[] = {
		CHECK(peeks_unix), CHECK(peeks_udp), CHECK(peeks_tcp), CHECK(peeks_wait), CHECK(keeping), CHECK(filters_unix),
		CHECK(filters_udp), CHECK(filters_raw), CHECK(filters_tcp), CHECK(saved_syn), CHECK(chosen_udp),
		CHECK(chosen_tcp), CHECK(newest), CHECK(stamped_tcp), CHECK(uevents),
	};
	return run_all(argc, argv, list, N(list));
}
