/* What connections do at their end, before they are accepted, and with urgent data. */
#define AREA "sockets2"
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>

#define UDP_CORK_ 1
#define SO_RCVMARK_ 75
#define SO_MEMINFO_ 55
#define SO_PEERPIDFD_ 77
#define SO_PASSPIDFD_ 76
#define TCP_INQ_ 36
#define IPV6_RECVORIGDSTADDR_ 74
#define IPV6_MULTICAST_ALL_ 29

static struct sockaddr_in6 to6;
static struct sockaddr_in to4;

static int set(int s, int level, int name, int v) { return setsockopt(s, level, name, &v, sizeof v); }
static int get(int s, int level, int name)
{
	int v = -7;
	socklen_t n = sizeof v;
	return getsockopt(s, level, name, &v, &n) < 0 ? -1 : v;
}

/* A listener of a family, and its address in to4 or to6. */
static int listener(int family)
{
	int s = socket(family, SOCK_STREAM, 0);
	void *a = family == AF_INET ? (void *)&to4 : (void *)&to6;
	socklen_t n = family == AF_INET ? sizeof to4 : sizeof to6;
	memset(a, 0, n);
	to4.sin_family = AF_INET;
	to4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	to6.sin6_family = AF_INET6;
	to6.sin6_addr = in6addr_loopback;
	if (bind(s, a, n) || listen(s, 8) || getsockname(s, a, &n))
		say("listener", "%s", strerrorname_np(errno));
	return s;
}
static int connects(int family)
{
	int s = socket(family, SOCK_STREAM, 0);
	void *a = family == AF_INET ? (void *)&to4 : (void *)&to6;
	connect(s, a, family == AF_INET ? sizeof to4 : sizeof to6);
	return s;
}
/* Both ends of a connection. */
static void pair(int family, int fd[2])
{
	if (family == AF_UNIX) {
		socketpair(AF_UNIX, SOCK_STREAM, 0, fd);
		return;
	}
	int l = listener(family);
	fd[0] = connects(family);
	fd[1] = accept(l, NULL, NULL);
	close(l);
}
static int polls(int fd, int ms)
{
	struct pollfd p = { fd, POLLIN | POLLPRI | POLLRDHUP | POLLRDBAND, 0 };
	poll(&p, 1, ms);
	return p.revents;
}

/* How long a close takes, in tenths of a second. */
static long close_takes(int fd)
{
	long long t = clock_ms(CLOCK_MONOTONIC);
	close(fd);
	return (clock_ms(CLOCK_MONOTONIC) - t + 50) / 100;
}
static void on_alarm(int n) { (void)n; }

static void fill(int fd)
{
	static char much[1 << 16];
	fcntl(fd, F_SETFL, O_NONBLOCK);
	for (int still = 0; still < 3; still++)
		while (write(fd, much, sizeof much) > 0)
			still = 0, ms(1);
	fcntl(fd, F_SETFL, 0);
}
static void linger_of(int family)
{
	int fd[2];
	struct linger l = { 1, 5 };
	socklen_t n = sizeof l;
	char b[70000];
	pair(family, fd);
	/* What is acknowledged needs no wait. */
	T(setsockopt(fd[0], SOL_SOCKET, SO_LINGER, &l, sizeof l));
	T(write(fd[0], "abc", 3));
	T(close_takes(fd[0]));
	T(read(fd[1], b, 9));
	T(read(fd[1], b, 9));
	close(fd[1]);
	/* What is not, until the time is over; O_NONBLOCK or not. */
	for (int flags = 0; flags < 2; flags++) {
		pair(family, fd);
		l.l_linger = 1;
		fill(fd[0]);
		setsockopt(fd[0], SOL_SOCKET, SO_LINGER, &l, sizeof l);
		if (flags)
			fcntl(fd[0], F_SETFL, O_NONBLOCK);
		T(close_takes(fd[0]));
		/* It goes on all the same. */
		long all = 0, got;
		while ((got = read(fd[1], b, sizeof b)) > 0)
			all += got;
		Y(all > 65536);
		T(got);
		close(fd[1]);
	}
	/* A signal ends the wait. */
	pair(family, fd);
	l.l_linger = 9;
	fill(fd[0]);
	setsockopt(fd[0], SOL_SOCKET, SO_LINGER, &l, sizeof l);
	struct sigaction sa = { .sa_handler = on_alarm };
	sigaction(SIGALRM, &sa, NULL);
	ualarm(300000, 0);
	T(close_takes(fd[0]));
	close(fd[1]);
	/* What is read ends it, too. */
	pair(family, fd);
	fill(fd[0]);
	setsockopt(fd[0], SOL_SOCKET, SO_LINGER, &l, sizeof l);
	if (fork() == 0) {
		close(fd[0]);
		ms(300);
		while (read(fd[1], b, sizeof b) > 0) {}
		_exit(0);
	}
	close(fd[1]);
	T(close_takes(fd[0]) < 60);
	wait(NULL);
	/* A copy keeps it open: no wait. dup2(2) closes, too; a process that ends does not wait. */
	pair(family, fd);
	l.l_linger = 1;
	fill(fd[0]);
	setsockopt(fd[0], SOL_SOCKET, SO_LINGER, &l, sizeof l);
	int copy = dup(fd[0]), other = dup(1);
	T(close_takes(copy));
	long long t = clock_ms(CLOCK_MONOTONIC);
	dup2(other, fd[0]);
	T((clock_ms(CLOCK_MONOTONIC) - t + 50) / 100);
	close(fd[1]);
	pair(family, fd);
	fill(fd[0]);
	setsockopt(fd[0], SOL_SOCKET, SO_LINGER, &l, sizeof l);
	t = clock_ms(CLOCK_MONOTONIC);
	if (fork() == 0)
		_exit(0);
	wait(NULL);
	T((clock_ms(CLOCK_MONOTONIC) - t + 50) / 100);
	/* shutdown(2) does not wait. */
	t = clock_ms(CLOCK_MONOTONIC);
	T(shutdown(fd[0], SHUT_WR));
	T((clock_ms(CLOCK_MONOTONIC) - t + 50) / 100);
	/* No time at all: a reset. */
	l.l_linger = 0;
	setsockopt(fd[0], SOL_SOCKET, SO_LINGER, &l, sizeof l);
	T(close_takes(fd[0]));
	Y(polls(fd[1], 1000) & POLLERR);
	T(get(fd[1], SOL_SOCKET, SO_ERROR));
	close(fd[1]);
	/* What it says. */
	int s = socket(family, SOCK_STREAM, 0);
	l.l_onoff = 7, l.l_linger = -3;
	T(setsockopt(s, SOL_SOCKET, SO_LINGER, &l, sizeof l));
	T(getsockopt(s, SOL_SOCKET, SO_LINGER, &l, &n));
	Y(l.l_onoff == 1 && l.l_linger != -3);
	l.l_onoff = 7, l.l_linger = 8;
	T(setsockopt(s, SOL_SOCKET, SO_LINGER, &l, sizeof l));
	T(getsockopt(s, SOL_SOCKET, SO_LINGER, &l, &n));
	say("linger", "%d %d", l.l_onoff, l.l_linger);
	l.l_onoff = 0, l.l_linger = 3;
	T(setsockopt(s, SOL_SOCKET, SO_LINGER, &l, sizeof l));
	T(getsockopt(s, SOL_SOCKET, SO_LINGER, &l, &n));
	say("linger", "%d %d", l.l_onoff, l.l_linger);
	T(setsockopt(s, SOL_SOCKET, SO_LINGER, &l, 4));
	close(s);
}
static void linger4(void) { linger_of(AF_INET); }
static void linger6(void) { linger_of(AF_INET6); }

/* Whether accept finds one within so long, and after how many tenths of a second. */
static int accepts(int l, int wait, long *tenths)
{
	long long t = clock_ms(CLOCK_MONOTONIC);
	int r = polls(l, wait) & POLLIN ? accept(l, NULL, NULL) : -1;
	*tenths = (clock_ms(CLOCK_MONOTONIC) - t) / 100;
	return r;
}
static void deferral(int family)
{
	long took;
	char b[9];
	int l = listener(family), c, s;
	T(set(l, IPPROTO_TCP, TCP_DEFER_ACCEPT, 1));
	T(get(l, IPPROTO_TCP, TCP_DEFER_ACCEPT));
	fcntl(l, F_SETFL, O_NONBLOCK);
	/* A byte. */
	c = connects(family);
	Y(accepts(l, 200, &took) < 0);
	T(accept(l, NULL, NULL));
	T(write(c, "x", 1));
	s = accepts(l, 1000, &took);
	Y(s >= 0);
	Y(took <= 2);
	T(read(s, b, 9));
	T(write(s, "yz", 2));
	T(read(c, b, 9));
	close(s), close(c);
	/* The end. */
	c = connects(family);
	Y(accepts(l, 100, &took) < 0);
	T(shutdown(c, SHUT_WR));
	s = accepts(l, 1000, &took);
	Y(s >= 0);
	Y(took <= 2);
	T(read(s, b, 9));
	close(s), close(c);
	c = connects(family);
	close(c);
	s = accepts(l, 1000, &took);
	Y(s >= 0);
	Y(took <= 2);
	T(read(s, b, 9));
	close(s);
	/* A reset: nobody was there. */
	struct linger hard = { 1, 0 };
	c = connects(family);
	setsockopt(c, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
	close(c);
	Y(accepts(l, 1500, &took) < 0);
	/* The time. */
	c = connects(family);
	s = accepts(l, 5000, &took);
	Y(s >= 0);
	Y(took >= 8);
	T(write(c, "later", 5));
	T(read(s, b, 9));
	close(s), close(c);
	/* The listener goes: those who wait are reset. */
	c = connects(family);
	close(l);
	Y(polls(c, 1000) != 0 || write(c, "x", 1) == 1);
	close(c);
	/* Without it, at once. */
	l = listener(family);
	c = connects(family);
	s = accepts(l, 1000, &took);
	Y(s >= 0);
	int v[] = { 0, 2, 3, 4, 7, 8, 100, 1000, -5 };
	for (unsigned i = 0; i < sizeof v / sizeof *v; i++) {
		T(set(l, IPPROTO_TCP, TCP_DEFER_ACCEPT, v[i]));
		T(get(l, IPPROTO_TCP, TCP_DEFER_ACCEPT));
	}
	close(s), close(c), close(l);
}
static void deferral4(void) { deferral(AF_INET); }
static void deferral6(void) { deferral(AF_INET6); }

static volatile int urgent_signals;
static void on_urgent(int n) { urgent_signals++; }
static int marked(int fd)
{
	int r = -7;
	return ioctl(fd, SIOCATMARK, &r) < 0 ? -1 : r;
}
static int unread(int fd)
{
	int r = -7;
	return ioctl(fd, FIONREAD, &r) < 0 ? -1 : r;
}
/* All that can be seen before a read. */
static void look(const char *what, int fd)
{
	ms(20);
	/* (Linux 6.18 counts bytes of UNIX sockets that MSG_OOB has read.) */
	int type = 0;
	socklen_t n = sizeof type;
	getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &type, &n);
	say(what, "polls %#x, mark %d, unread %d", polls(fd, 0), marked(fd), type == AF_UNIX ? 0 : unread(fd));
}
static void take(const char *what, int fd, int n, int flags)
{
	char b[64], h[64] = "";
	struct iovec v = { b, n };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	long r = recvmsg(fd, &m, flags | MSG_DONTWAIT);
	if (r < 0)
		say(what, "%s", strerrorname_np(errno));
	else
		say(what, "%ld \"%.*s\" flags %#x", r, (int)(r > n ? n : r), b, m.msg_flags & ~MSG_EOR);
}
static void urgent_of(int family)
{
	int fd[2];
	pair(family, fd);
	int a = fd[0], b = fd[1];
	look("nothing", b);
	take("nothing", b, 9, MSG_OOB);
	T(send(a, "abcd", 4, MSG_OOB));
	look("three and one", b);
	take("peeked", b, 9, MSG_OOB | MSG_PEEK);
	take("up to the mark", b, 9, 0);
	look("at the mark", b);
	take("peek past", b, 9, MSG_PEEK);
	take("the byte", b, 9, MSG_OOB);
	look("the byte was read", b);
	take("again", b, 9, MSG_OOB);
	T(send(a, "efg", 3, 0));
	look("more", b);
	take("more", b, 2, 0);
	look("behind", b);
	take("more", b, 9, 0);
	/* Unread, it is passed over. */
	T(send(a, "X", 1, MSG_OOB));
	look("only the byte", b);
	take("only the byte", b, 9, 0);
	T(send(a, "12", 2, 0));
	look("passed", b);
	take("passed", b, 9, 0);
	take("gone", b, 9, MSG_OOB);
	/* Two: the older one is an ordinary byte. */
	T(send(a, "pQ", 2, MSG_OOB));
	T(send(a, "rS", 2, MSG_OOB));
	T(send(a, "t", 1, 0));
	look("two", b);
	take("two", b, 9, MSG_PEEK);
	take("two", b, 9, 0);
	take("two", b, 9, MSG_OOB);
	take("rest", b, 9, 0);
	T(send(a, "U", 1, MSG_OOB));
	T(send(a, "V", 1, MSG_OOB));
	look("at the first of two", b);
	take("first of two", b, 9, 0);
	take("second", b, 9, MSG_OOB);
	take("rest", b, 9, 0);
	/* Into no room. */
	T(send(a, "W", 1, MSG_OOB));
	ms(20);
	T(recv(b, NULL, 0, MSG_OOB));
	take("after no room", b, 9, MSG_OOB);
	take("rest", b, 9, 0);
	/* In the stream. */
	T(set(b, SOL_SOCKET, SO_OOBINLINE, 1));
	T(send(a, "klm", 3, MSG_OOB));
	T(send(a, "nop", 3, 0));
	look("inline", b);
	take("inline", b, 9, MSG_OOB);
	take("inline", b, 9, MSG_PEEK);
	take("inline", b, 9, 0);
	look("inline", b);
	take("inline", b, 9, 0);
	look("inline", b);
	/* Switched while it waits. */
	T(send(a, "hI", 2, MSG_OOB));
	ms(20);
	T(set(b, SOL_SOCKET, SO_OOBINLINE, 0));
	look("switched", b);
	take("switched", b, 9, 0);
	take("switched", b, 9, MSG_OOB);
	take("rest", b, 9, 0);
	/* MSG_WAITALL ends at the mark. */
	T(send(a, "01", 2, 0));
	T(send(a, "2!", 2, MSG_OOB));
	T(send(a, "345", 3, 0));
	ms(20);
	char all[16];
	T(recv(b, all, 6, MSG_WAITALL));
	T(recv(b, all, 3, MSG_WAITALL));
	/* Nothing is sent, or nobody is there. */
	T(send(a, "", 0, MSG_OOB));
	look("empty", b);
	T(send(a, "Z", 1, MSG_OOB));
	close(a);
	look("closed", b);
	take("closed", b, 9, MSG_OOB);
	take("closed", b, 9, 0);
	take("closed", b, 9, MSG_OOB);
	close(b);
	int s = socket(family, SOCK_STREAM, 0);
	take("idle", s, 9, MSG_OOB);
	T(send(s, "x", 1, MSG_OOB | MSG_NOSIGNAL));
	T(marked(s));
	close(s);
}
static void signalled(int family)
{
	int fd[2], got = 0;
	struct sigaction sa = { .sa_handler = on_urgent };
	struct epoll_event e = { .events = EPOLLPRI }, out;
	sigaction(SIGURG, &sa, NULL);
	pair(family, fd);
	int a = fd[0], b = fd[1], ep = epoll_create1(0);
	T(epoll_ctl(ep, EPOLL_CTL_ADD, b, &e));
	T(send(a, "a", 1, MSG_OOB));
	T(epoll_wait(ep, &out, 1, 500));
	say("events", "%#x", out.events);
	T(urgent_signals);
	take("byte", b, 9, MSG_OOB);
	T(epoll_wait(ep, &out, 1, 0));
	T(fcntl(b, F_SETOWN, getpid()));
	T(send(a, "b", 1, MSG_OOB));
	ms(50);
	T(urgent_signals);
	take("byte", b, 9, MSG_OOB);
	/* With O_ASYNC: SIGIO by the bytes, and with a signal of one's own by the mark, too. */
	sigset_t set;
	siginfo_t i;
	struct timespec soon = { 0, 200000000 };
	sigemptyset(&set);
	sigaddset(&set, SIGIO);
	sigaddset(&set, SIGURG);
	sigaddset(&set, SIGRTMIN);
	sigprocmask(SIG_BLOCK, &set, NULL);
	T(fcntl(b, F_SETFL, O_ASYNC));
	T(send(a, "c", 1, MSG_OOB));
	ms(50);
	while (sigtimedwait(&set, &i, &soon) > 0)
		got |= i.si_signo == SIGURG ? 1 : i.si_signo == SIGIO ? 2 : 4;
	T(got);
	T(fcntl(b, F_SETSIG, SIGRTMIN));
	T(send(a, "d", 1, MSG_OOB));
	ms(50);
	int pri = 0;
	while (sigtimedwait(&set, &i, &soon) > 0) {
		got |= i.si_signo == SIGURG ? 1 : i.si_signo == SIGIO ? 2 : 4;
		pri |= i.si_signo == SIGRTMIN && i.si_code == POLL_PRI;
	}
	T(got);
	T(pri);
	close(a), close(b);
}
static void urgent4(void) { urgent_of(AF_INET); }
static void urgent6(void) { urgent_of(AF_INET6); }
static void urgent_unix(void) { urgent_of(AF_UNIX); }
static void signalled4(void) { signalled(AF_INET); }
static void signalled_unix(void) { signalled(AF_UNIX); }

/* Two UDP sockets, the first connected to the second. */
static void udp_pair(int family, int fd[2])
{
	fd[1] = socket(family, SOCK_DGRAM, 0);
	fd[0] = socket(family, SOCK_DGRAM, 0);
	void *a = family == AF_INET ? (void *)&to4 : (void *)&to6;
	socklen_t n = family == AF_INET ? sizeof to4 : sizeof to6;
	memset(a, 0, n);
	to4.sin_family = AF_INET;
	to4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	to6.sin6_family = AF_INET6;
	to6.sin6_addr = in6addr_loopback;
	bind(fd[1], a, n);
	getsockname(fd[1], a, &n);
	connect(fd[0], a, n);
}
static void corked(int family)
{
	int fd[2];
	char b[70000];
	udp_pair(family, fd);
	int a = fd[0], r = fd[1];
	fcntl(r, F_SETFL, O_NONBLOCK);
	T(set(a, IPPROTO_UDP, UDP_CORK_, 1));
	T(get(a, IPPROTO_UDP, UDP_CORK_));
	T(send(a, "abc", 3, 0));
	T(send(a, "def", 3, 0));
	T(read(r, b, sizeof b));
	T(set(a, IPPROTO_UDP, UDP_CORK_, 0));
	T(read(r, b, sizeof b));
	S(b, 6);
	T(send(a, "12", 2, MSG_MORE));
	T(read(r, b, sizeof b));
	T(send(a, "", 0, MSG_MORE));
	T(send(a, "34", 2, 0));
	T(read(r, b, sizeof b));
	S(b, 4);
	/* Where it goes is said first. */
	int u = socket(family, SOCK_DGRAM, 0);
	void *to = family == AF_INET ? (void *)&to4 : (void *)&to6;
	socklen_t n = family == AF_INET ? sizeof to4 : sizeof to6;
	T(send(u, "x", 1, MSG_MORE));
	T(sendto(u, "x", 1, MSG_MORE, to, n));
	T(send(u, "y", 1, 0));
	T(read(r, b, sizeof b));
	/* Too much is dropped as a whole. */
	T(sendto(u, b, 40000, MSG_MORE, to, n));
	T(sendto(u, b, 40000, MSG_MORE, to, n));
	T(sendto(u, "z", 1, 0, to, n));
	T(read(r, b, sizeof b));
	/* An empty one; one that is never sent. */
	T(send(a, "", 0, 0));
	T(read(r, b, sizeof b));
	T(send(a, "gone", 4, MSG_MORE));
	T(send(a, "", 0, MSG_OOB));
	close(a);
	T(read(r, b, sizeof b));
	close(u), close(r);
}
static void corked4(void) { corked(AF_INET); }
static void corked6(void) { corked(AF_INET6); }

/* The ancillary data of what a receive gives. */
static void told(const char *what, int fd, int flags)
{
	char b[512], c[1024], line[600];
	union { struct sockaddr_in6 six; struct sockaddr_in four; } from;
	struct iovec v = { b, sizeof b };
	struct msghdr m = { &from, sizeof from, &v, 1, c, sizeof c, 0 };
	long r = recvmsg(fd, &m, flags | MSG_DONTWAIT);
	if (r < 0) {
		say(what, "%s", strerrorname_np(errno));
		return;
	}
	int at = sprintf(line, "%ld bytes, flags %#x, name %d", r, m.msg_flags, m.msg_namelen);
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h)) {
		int n = h->cmsg_len - CMSG_LEN(0);
		unsigned char *d = CMSG_DATA(h);
		at += sprintf(line + at, "; %d/%d (%d)", h->cmsg_level, h->cmsg_type, n);
		if (h->cmsg_level == SOL_SOCKET && (n == 16 || n == 48)) {
			struct timespec t, now;
			memcpy(&t, d, sizeof t);
			clock_gettime(CLOCK_REALTIME, &now);
			at += sprintf(line + at, " %s", now.tv_sec - t.tv_sec <= 2 && now.tv_sec >= t.tv_sec ? "now" : "?");
		} else if (h->cmsg_level == SOL_SOCKET && n == 4)
			at += sprintf(line + at, " %u", *(unsigned *)d);
		else if (h->cmsg_type == 11 || h->cmsg_type == 25) {
			for (int i = 0; i < 16; i++)
				at += sprintf(line + at, "%s%02x", i % 4 ? "" : " ", d[i]);
		} else if (n <= 4)
			for (int i = 0; i < n; i++)
				at += sprintf(line + at, " %02x", d[i]);
	}
	say(what, "%s", line);
}
static long send_with(int fd, int level, int type, const void *v, int n)
{
	char c[64] = { 0 };
	struct iovec i = { "hello", 5 };
	struct msghdr m = { .msg_iov = &i, .msg_iovlen = 1, .msg_control = c, .msg_controllen = CMSG_SPACE(n) };
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	h->cmsg_level = level, h->cmsg_type = type, h->cmsg_len = CMSG_LEN(n);
	memcpy(CMSG_DATA(h), v, n);
	return sendmsg(fd, &m, 0);
}
/* When the last datagram came: in microseconds, in nanoseconds, and the newer numbers of both. */
static void last_stamps(int fd)
{
	static const unsigned asked[] = { 0x8906, 0x8907, 0x80108906, 0x80108907 };
	for (unsigned i = 0; i < 4; i++) {
		long t[2] = { 0, 0 };
		T(ioctl(fd, asked[i], t));
		Y(t[0] == 0 || labs(t[0] - time(0)) < 5);
		Y(t[1] >= 0 && t[1] < (i % 2 ? 1000000000 : 1000000));
	}
}
static void ancillary(int family)
{
	static const int stamps[] = { SO_TIMESTAMP_OLD, SO_TIMESTAMPNS_OLD, SO_TIMESTAMP_NEW, SO_TIMESTAMPNS_NEW };
	int fd[2], v;
	udp_pair(family, fd);
	int a = fd[0], r = fd[1];
	last_stamps(r);
	send(a, "x", 1, 0);
	last_stamps(r);
	told("first", r, 0);
	last_stamps(r);
	for (unsigned i = 0; i < 4; i++) {
		T(set(r, SOL_SOCKET, stamps[i], 1));
		for (unsigned j = 0; j < 4; j++)
			T(get(r, SOL_SOCKET, stamps[j]));
		send(a, "x", 1, 0);
		told("stamp", r, 0);
	}
	last_stamps(r);
	T(set(r, SOL_SOCKET, SO_TIMESTAMP_OLD, 0));
	/* Flags of SO_TIMESTAMPING. */
	T(set(r, SOL_SOCKET, SO_TIMESTAMPING_OLD, 1 << 3 | 1 << 4));
	ms(50);
	send(a, "x", 1, 0);
	told("receive", r, 0);
	T(set(r, SOL_SOCKET, SO_TIMESTAMPING_NEW, 1 << 3 | 1 << 4));
	ms(50);
	send(a, "x", 1, 0);
	told("receive, new", r, 0);
	T(set(r, SOL_SOCKET, SO_TIMESTAMPING_OLD, 0));
	T(set(r, SOL_SOCKET, SO_TIMESTAMPING_OLD, 1 << 30));
	T(set(r, SOL_SOCKET, SO_TIMESTAMPING_OLD, 1 << 12));
	T(set(r, SOL_SOCKET, SO_TIMESTAMPING_OLD, 1 << 16));
	/* What is sent. */
	T(set(a, SOL_SOCKET, SO_TIMESTAMPING_OLD, 1 << 1 | 1 << 4 | 1 << 7 | 1 << 8 | 1 << 11));
	send(a, "abc", 3, 0);
	Y(polls(a, 500) & POLLERR);
	told("sent", a, MSG_ERRQUEUE);
	told("sent", a, MSG_ERRQUEUE);
	told("sent", a, MSG_ERRQUEUE);
	send(a, "abc", 3, 0);
	ms(20);
	told("sent", a, MSG_ERRQUEUE);
	told("sent", a, MSG_ERRQUEUE);
	T(get(a, SOL_SOCKET, SO_ERROR));
	T(set(a, SOL_SOCKET, SO_TIMESTAMPING_OLD, 1 << 1 | 1 << 4));
	send(a, "abc", 3, 0);
	ms(20);
	told("with the packet", a, MSG_ERRQUEUE);
	T(set(a, SOL_SOCKET, SO_TIMESTAMPING_OLD, 1 << 4 | 1 << 11));
	v = 1 << 1;
	T(send_with(a, SOL_SOCKET, SO_TIMESTAMPING_OLD, &v, 4));
	ms(20);
	told("by the call", a, MSG_ERRQUEUE);
	v = 1 << 4;
	T(send_with(a, SOL_SOCKET, SO_TIMESTAMPING_OLD, &v, 4));
	T(set(a, SOL_SOCKET, SO_TIMESTAMPING_OLD, 0));
	while (recv(r, &v, 1, MSG_DONTWAIT) > 0) {}
	/* Marks, priorities, others. */
	T(set(r, SOL_SOCKET, SO_RCVMARK_, 1));
	T(set(a, SOL_SOCKET, SO_MARK, 77));
	send(a, "x", 1, 0);
	told("mark", r, 0);
	v = 78;
	T(send_with(a, SOL_SOCKET, SO_MARK, &v, 4));
	told("mark by the call", r, 0);
	T(send_with(a, SOL_SOCKET, SO_MARK, &v, 2));
	T(send_with(a, SOL_SOCKET, SO_RCVBUF, &v, 4));
	T(set(r, SOL_SOCKET, SO_RCVMARK_, 0));
	/* Where it was sent. */
	if (family == AF_INET) {
		T(set(r, IPPROTO_IP, IP_RECVORIGDSTADDR, 1));
		T(set(r, IPPROTO_IP, IP_RECVTTL, 1));
		T(set(r, IPPROTO_IP, IP_RECVTOS, 1));
		T(set(r, IPPROTO_IP, IP_PKTINFO, 1));
		T(set(a, IPPROTO_IP, IP_TTL, 9));
		T(set(a, IPPROTO_IP, IP_TOS, 0x20));
	} else {
		T(set(r, IPPROTO_IPV6, IPV6_RECVORIGDSTADDR_, 1));
		T(set(r, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1));
		T(set(r, IPPROTO_IPV6, IPV6_RECVTCLASS, 1));
		T(set(r, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1));
		T(set(a, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 9));
		T(set(a, IPPROTO_IPV6, IPV6_TCLASS, 0x20));
	}
	send(a, "x", 1, 0);
	told("where", r, 0);
	/* What was lost. */
	T(set(r, SOL_SOCKET, SO_RXQ_OVFL, 1));
	T(set(r, SOL_SOCKET, SO_RCVBUF, 3000));
	static char big[1000];
	for (int i = 0; i < 40; i++)
		send(a, big, sizeof big, 0);
	while (recv(r, big, 1, MSG_DONTWAIT) > 0) {}
	send(a, "x", 1, 0);
	char b[9], c[256];
	struct iovec iov = { b, 9 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = c, .msg_controllen = sizeof c };
	T(recvmsg(r, &m, MSG_DONTWAIT));
	int lost = 0;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h))
		lost |= h->cmsg_type == SO_RXQ_OVFL && *(int *)CMSG_DATA(h) > 10;
	T(lost);
	unsigned info[9];
	socklen_t n = sizeof info;
	T(getsockopt(r, SOL_SOCKET, SO_MEMINFO_, info, &n));
	Y(n == 36 && info[1] == 6000 && info[8] > 10);
	close(a), close(r);
}
static void ancillary4(void) { ancillary(AF_INET); }
static void ancillary6(void) { ancillary(AF_INET6); }

/* When the bytes of a stream came, and how many are left. */
static void stream_told(int family)
{
	int fd[2];
	pair(family, fd);
	T(set(fd[1], SOL_SOCKET, SO_TIMESTAMP_OLD, 1));
	T(set(fd[1], IPPROTO_TCP, TCP_INQ_, 1));
	T(get(fd[1], IPPROTO_TCP, TCP_INQ_));
	T(set(fd[1], IPPROTO_TCP, TCP_INQ_, 2));
	ms(50);
	T(write(fd[0], "abc", 3));
	ms(20);
	told("peek", fd[1], MSG_PEEK);
	told("all", fd[1], 0);
	told("nothing", fd[1], 0);
	T(set(fd[1], SOL_SOCKET, SO_TIMESTAMP_OLD, 0));
	T(set(fd[1], SOL_SOCKET, SO_TIMESTAMPING_OLD, 1 << 3 | 1 << 4));
	static char much[1000];
	T(write(fd[0], much, sizeof much));
	ms(20);
	told("some", fd[1], 0);
	told("rest", fd[1], 0);
	close(fd[0]);
	ms(20);
	told("end", fd[1], 0);
	close(fd[1]);
}
static void stream_told4(void) { stream_told(AF_INET); }
static void stream_told6(void) { stream_told(AF_INET6); }

/* Who is at the other end of a UNIX socket. */
static void peers(void)
{
	int fd[2], pid, groups[64];
	socklen_t n = sizeof pid;
	char b[9], c[256];
	socketpair(AF_UNIX, SOCK_STREAM, 0, fd);
	T(getsockopt(fd[0], SOL_SOCKET, SO_PEERPIDFD_, &pid, &n) == 0 && pid > 2);
	Y(fcntl(pid, F_GETFD) == FD_CLOEXEC);
	T(syscall(SYS_pidfd_send_signal, pid, 0, NULL, 0));
	n = sizeof groups;
	int mine = getgroups(64, groups);
	T(getsockopt(fd[0], SOL_SOCKET, SO_PEERGROUPS, groups, &n));
	Y(n == mine * 4);
	if (mine > 0) {
		n = 1;
		Y(getsockopt(fd[0], SOL_SOCKET, SO_PEERGROUPS, groups, &n) == -1 && errno == ERANGE && n == mine * 4);
	}
	T(set(fd[1], SOL_SOCKET, SO_PASSPIDFD_, 1));
	T(get(fd[1], SOL_SOCKET, SO_PASSPIDFD_));
	T(write(fd[0], "x", 1));
	struct iovec iov = { b, 9 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = c, .msg_controllen = sizeof c };
	T(recvmsg(fd[1], &m, 0));
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	Y(h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == 4 && h->cmsg_len == CMSG_LEN(4));
	if (h)
		T(syscall(SYS_pidfd_send_signal, *(int *)CMSG_DATA(h), 0, NULL, 0));
	T(write(fd[0], "x", 1));
	m.msg_controllen = 8;
	T(recvmsg(fd[1], &m, 0));
	T(m.msg_flags);
	close(fd[0]), close(fd[1]);
	int s = socket(AF_UNIX, SOCK_STREAM, 0);
	n = 4;
	T(getsockopt(s, SOL_SOCKET, SO_PEERPIDFD_, &pid, &n));
	n = sizeof groups;
	T(getsockopt(s, SOL_SOCKET, SO_PEERGROUPS, groups, &n));
	s = socket(AF_INET, SOCK_STREAM, 0);
	n = 4;
	T(getsockopt(s, SOL_SOCKET, SO_PEERPIDFD_, &pid, &n));
	T(set(s, SOL_SOCKET, SO_PASSPIDFD_, 1));
}

/* Sources of groups. */
static int got(int s)
{
	char b[9];
	ms(10);
	int n = 0;
	while (recv(s, b, 9, MSG_DONTWAIT) > 0)
		n++;
	return n;
}
static void sources4(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = inet_addr("239.1.2.3") };
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t n = sizeof at;
	struct in_addr lo = { htonl(INADDR_LOOPBACK) }, two = { inet_addr("127.0.0.2") };
	struct ip_mreq_source one = { to.sin_addr, lo, lo }, other = { to.sin_addr, lo, two };
	struct ip_mreq plain = { to.sin_addr, lo };
	int r = socket(AF_INET, SOCK_DGRAM, 0), a = socket(AF_INET, SOCK_DGRAM, 0), b = socket(AF_INET, SOCK_DGRAM, 0);
	bind(r, (void *)&at, n);
	getsockname(r, (void *)&at, &n);
	to.sin_port = at.sin_port;
	at.sin_port = 0, at.sin_addr = lo;
	bind(a, (void *)&at, n);
	at.sin_addr = two;
	bind(b, (void *)&at, n);
	T(setsockopt(a, IPPROTO_IP, IP_MULTICAST_IF, &lo, 4));
	T(setsockopt(b, IPPROTO_IP, IP_MULTICAST_IF, &lo, 4));
	T(set(r, IPPROTO_IP, IP_MULTICAST_ALL, 0));
#define BOTH do { sendto(a, "a", 1, 0, (void *)&to, n); say("first", "%d", got(r)); sendto(b, "b", 1, 0, (void *)&to, n); say("second", "%d", got(r)); } while (0)
	T(setsockopt(r, IPPROTO_IP, IP_BLOCK_SOURCE, &one, sizeof one));
	T(setsockopt(r, IPPROTO_IP, IP_DROP_SOURCE_MEMBERSHIP, &one, sizeof one));
	T(setsockopt(r, IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, &one, sizeof one - 1));
	T(setsockopt(r, IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, &one, sizeof one));
	BOTH;
	T(setsockopt(r, IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, &one, sizeof one));
	T(setsockopt(r, IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, &other, sizeof one));
	BOTH;
	T(setsockopt(r, IPPROTO_IP, IP_BLOCK_SOURCE, &one, sizeof one));
	T(setsockopt(r, IPPROTO_IP, IP_DROP_SOURCE_MEMBERSHIP, &one, sizeof one));
	BOTH;
	T(setsockopt(r, IPPROTO_IP, IP_DROP_SOURCE_MEMBERSHIP, &other, sizeof one));
	BOTH;
	T(setsockopt(r, IPPROTO_IP, IP_DROP_SOURCE_MEMBERSHIP, &other, sizeof one));
	/* All but one. */
	T(setsockopt(r, IPPROTO_IP, IP_ADD_MEMBERSHIP, &plain, sizeof plain));
	BOTH;
	T(setsockopt(r, IPPROTO_IP, IP_BLOCK_SOURCE, &one, sizeof one));
	T(setsockopt(r, IPPROTO_IP, IP_BLOCK_SOURCE, &one, sizeof one));
	T(setsockopt(r, IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, &other, sizeof one));
	BOTH;
	T(setsockopt(r, IPPROTO_IP, IP_UNBLOCK_SOURCE, &other, sizeof one));
	T(setsockopt(r, IPPROTO_IP, IP_UNBLOCK_SOURCE, &one, sizeof one));
	BOTH;
	/* A whole filter. */
	struct { struct in_addr group, device; unsigned mode, count; struct in_addr list[12]; } f = { to.sin_addr, lo, 1, 1, { two } };
	T(setsockopt(r, IPPROTO_IP, IP_MSFILTER, &f, 20));
	BOTH;
	T(setsockopt(r, IPPROTO_IP, IP_MSFILTER, &f, 19));
	f.count = 11;
	T(setsockopt(r, IPPROTO_IP, IP_MSFILTER, &f, 60));
	socklen_t fl = sizeof f;
	f.count = 12, f.mode = 9;
	T(getsockopt(r, IPPROTO_IP, IP_MSFILTER, &f, &fl));
	say("filter", "%u bytes, mode %u, %u, %x", fl, f.mode, f.count, f.list[0].s_addr);
	f.count = 0;
	T(getsockopt(r, IPPROTO_IP, IP_MSFILTER, &f, &fl));
	say("filter", "%u bytes, %u", fl, f.count);
	fl = 15;
	T(getsockopt(r, IPPROTO_IP, IP_MSFILTER, &f, &fl));
	f.group.s_addr++, fl = 16;
	T(getsockopt(r, IPPROTO_IP, IP_MSFILTER, &f, &fl));
	f.group.s_addr--;
	f.list[0] = two;
	f.mode = 2, f.count = 1;
	T(setsockopt(r, IPPROTO_IP, IP_MSFILTER, &f, 20));
	f.mode = 0, f.count = 0;
	T(setsockopt(r, IPPROTO_IP, IP_MSFILTER, &f, 16));
	BOTH;
	f.mode = 1;
	T(setsockopt(r, IPPROTO_IP, IP_MSFILTER, &f, 16));
	BOTH;
	T(setsockopt(r, IPPROTO_IP, IP_DROP_MEMBERSHIP, &plain, sizeof plain));
	for (int i = 1; i < 13; i++) {
		one.imr_sourceaddr.s_addr = htonl(0x7f000100 + i);
		T(setsockopt(r, IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, &one, sizeof one));
	}
}
static void sources6(void)
{
	struct sockaddr_in6 to = { .sin6_family = AF_INET6 }, at = { .sin6_family = AF_INET6 };
	socklen_t n = sizeof at;
	inet_pton(AF_INET6, "ff15::77", &to.sin6_addr);
	int r = socket(AF_INET6, SOCK_DGRAM, 0), a = socket(AF_INET6, SOCK_DGRAM, 0), lo = 1;
	bind(r, (void *)&at, n);
	getsockname(r, (void *)&at, &n);
	to.sin6_port = at.sin6_port;
	at.sin6_port = 0, at.sin6_addr = in6addr_loopback;
	bind(a, (void *)&at, n);
	set(a, IPPROTO_IPV6, IPV6_MULTICAST_IF, lo);
	set(r, IPPROTO_IPV6, IPV6_MULTICAST_ALL_, 0);
	struct group_source_req g = { .gsr_interface = lo };
	memcpy(&g.gsr_group, &to, sizeof to);
	memcpy(&g.gsr_source, &at, sizeof at);
	T(setsockopt(r, IPPROTO_IPV6, MCAST_BLOCK_SOURCE, &g, sizeof g));
	T(setsockopt(r, IPPROTO_IPV6, MCAST_JOIN_SOURCE_GROUP, &g, sizeof g - 1));
	T(setsockopt(r, IPPROTO_IPV6, MCAST_JOIN_SOURCE_GROUP, &g, sizeof g));
	((struct sockaddr_in6 *)&g.gsr_source)->sin6_addr.s6_addr[15] = 9;
	T(setsockopt(r, IPPROTO_IPV6, MCAST_JOIN_SOURCE_GROUP, &g, sizeof g));
	((struct sockaddr_in6 *)&g.gsr_source)->sin6_addr.s6_addr[15] = 1;
	T(setsockopt(r, IPPROTO_IPV6, MCAST_LEAVE_SOURCE_GROUP, &g, sizeof g));
	T(setsockopt(r, IPPROTO_IPV6, MCAST_LEAVE_GROUP, &g, sizeof(struct group_req)));
	T(setsockopt(r, IPPROTO_IPV6, MCAST_JOIN_GROUP, &g, sizeof(struct group_req)));
	T(setsockopt(r, IPPROTO_IPV6, MCAST_BLOCK_SOURCE, &g, sizeof g));
	T(setsockopt(r, IPPROTO_IPV6, MCAST_UNBLOCK_SOURCE, &g, sizeof g));
	((struct sockaddr *)&g.gsr_source)->sa_family = AF_INET;
	T(setsockopt(r, IPPROTO_IPV6, MCAST_BLOCK_SOURCE, &g, sizeof g));
}

static const struct check all[] = {
	CHECK(corked4), CHECK(corked6), CHECK(ancillary4), CHECK(ancillary6), CHECK(sources4), CHECK(sources6),
	CHECK(stream_told4), CHECK(stream_told6), CHECK(peers),
	CHECK(linger4), CHECK(linger6), CHECK(deferral4), CHECK(deferral6), CHECK(urgent4), CHECK(urgent6),
	CHECK(urgent_unix), CHECK(signalled4), CHECK(signalled_unix),
};
MAIN(all)
