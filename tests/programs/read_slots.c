/* Reads of sockets and changes of an epoll that are made often from the same place: a sandbox may answer them beside
 * itself, ahead of time or later. Nothing of that may show. */
#define AREA "read_slots"
#include "check.h"
#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>

#define OFTEN 400

/* Calls whose number is loaded right before them. */
#define CALL(nr, setup, ...) ({ long r_; \
	asm volatile(setup "mov %1, %%eax\n\tsyscall" : "=&a"(r_) : "i"(nr), __VA_ARGS__ : "rcx", "r11", "memory", "cc"); r_; })

static long ret(long r)
{
	if (r < 0 && r > -4096) {
		errno = -r;
		return -1;
	}
	return r;
}
__attribute__((noinline)) static long rd(int fd, void *b, size_t n)
{
	return ret(CALL(SYS_read, "", "D"((long)fd), "S"(b), "d"(n)));
}
__attribute__((noinline)) static long rv(int fd, void *b, size_t n, int flags)
{
	register long f asm("r10") = flags, a asm("r8") = 0, l asm("r9") = 0;
	return ret(CALL(SYS_recvfrom, "", "D"((long)fd), "S"(b), "d"(n), "r"(f), "r"(a), "r"(l)));
}
__attribute__((noinline)) static long ctl_at(int ep, int op, int fd, void *event)
{
	register void *e asm("r10") = event;
	return ret(CALL(SYS_epoll_ctl, "", "D"((long)ep), "S"((long)op), "d"((long)fd), "r"(e)));
}
static long ctl(int ep, int op, int fd, unsigned events)
{
	struct epoll_event e = { .events = events, .data.u64 = 0x100000000ULL * fd + 7 };
	return ctl_at(ep, op, fd, &e);
}

static void unblock(int fd, int on)
{
	int f = fcntl(fd, F_GETFL);
	fcntl(fd, F_SETFL, on ? f | O_NONBLOCK : f & ~O_NONBLOCK);
}

/* kind 0: UNIX, 1: TCP. Both ends do not block. */
static void join(int kind, int s[2])
{
	if (kind == 0) {
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s);
		return;
	}
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	bind(l, (void *)&a, n);
	listen(l, 1);
	getsockname(l, (void *)&a, &n);
	s[0] = socket(AF_INET, SOCK_STREAM, 0);
	connect(s[0], (void *)&a, n);
	s[1] = accept(l, NULL, NULL);
	close(l);
	for (int i = 0; i < 2; i++) {
		setsockopt(s[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		unblock(s[i], 1);
	}
}
static int readable(int fd, int millis)
{
	struct pollfd p = { fd, POLLIN, 0 };
	return poll(&p, 1, millis) == 1 ? p.revents : 0;
}
static void feed(int fd, const char *text)
{
	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		say("feed", "failed");
}

/* Until the call sites and the descriptor are known. */
static void warm(int s[2])
{
	char b[64];
	long bad = 0;
	for (int i = 0; i < OFTEN; i++) {
		feed(s[1], "abcdef");
		bad += !(readable(s[0], 1000) & POLLIN);
		bad += rd(s[0], b, 4) != 4 || memcmp(b, "abcd", 4);
		bad += rv(s[0], b, 64, 0) != 2 || memcmp(b, "ef", 2);
		bad += rd(s[0], b, 64) != -1 || errno != EAGAIN;
		bad += rv(s[0], b, 64, 0) != -1 || errno != EAGAIN;
	}
	T(bad);
}
#define BOTH(...) for (int kind = 0; kind < 2; kind++) { int s[2]; char b[8192]; (void)b; join(kind, s); warm(s); __VA_ARGS__; close(s[0]); close(s[1]); }
#define FILL(text) do { feed(s[1], text); readable(s[0], 1000); } while (0)

static void plain(void)
{
	BOTH(
		FILL("0123456789");
		T(rd(s[0], b, 0));
		T(rd(s[0], b, 3)); S(b, 3);
		T(rv(s[0], b, 3, 0)); S(b, 3);
		feed(s[1], "more");
		T(rd(s[0], b, 100)); S(b, 8);
		T(rd(s[0], b, 100));
		FILL("waiting");
		feed(s[1], " and more");
		T(rd(s[0], b, 100)); S(b, 16);
		FILL("x");
		T(rv(s[0], b, 100, MSG_DONTWAIT));
		FILL("peeked");
		T(rv(s[0], b, 2, 0));
		T(rv(s[0], b, 100, MSG_PEEK)); S(b, 4);
		int n = 0;
		T(ioctl(s[0], FIONREAD, &n)); T(n);
		T(rd(s[0], b, 1));
		T(ioctl(s[0], FIONREAD, &n)); T(n);
		struct iovec v[2] = { { b, 1 }, { b + 1, 10 } };
		T(readv(s[0], v, 2)); S(b, 3);
		/* More than anybody would copy. */
		memset(b, 'z', sizeof b);
		T(write(s[1], b, sizeof b));
		long sum = 0, r;
		while (readable(s[0], 50) && (r = rd(s[0], b, 1000)) > 0) sum += r;
		T(sum);
		T(rd(s[0], b, 10)); T(rd(-1, b, 10)); T(rd(100000, b, 10)); T(rv(0, b, 10, 0)))
}

static void bad_buffers(void)
{
	char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(p + 4096, 4096, PROT_NONE);
	BOTH(
		FILL("abcdefgh");
		T(rd(s[0], (void *)8, 100));
		T(rd(s[0], p + 4096, 8));
		T(rd(s[0], (void *)0x7ffe40000000, 8)); T(rd(s[0], (void *)-4096L, 8)); T(rd(s[0], (void *)0x800000000000, 8));
		T(rv(s[0], "constant", 8, 0));
		char *fresh = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		T(rd(s[0], fresh + 4090, 3)); S(fresh + 4090, 3);
		T(rd(s[0], p + 4093, 3)); S(p + 4093, 3);
		T(rv(s[0], b, 100, 0)); S(b, 2);
		T(rd(s[0], (void *)-4096L, 8));
		munmap(fresh, 4096))
}

static void ends(void)
{
	for (int way = 0; way < 6; way++)
		BOTH(
			T(way);
			if (way & 1) FILL("last");
			struct linger l = { 1, 0 };
			if (way / 2 == 0) shutdown(s[1], SHUT_WR);
			if (way / 2 == 1) { setsockopt(s[1], SOL_SOCKET, SO_LINGER, &l, sizeof l); close(s[1]); s[1] = -1; }
			if (way / 2 == 2) { feed(s[0], "unread"); close(s[1]); s[1] = -1; }
			if (kind == 0 || way / 2 == 0) { T(rd(s[0], b, 2)); T(rd(s[0], b, 100)); }
			else if (!(way & 1)) T(rd(s[0], b, 2));
			T(rd(s[0], b, 100)); T(rv(s[0], b, 100, 0)))
	BOTH(FILL("shut"); T(shutdown(s[0], SHUT_RD)); T(rd(s[0], b, 2)); T(rd(s[0], b, 9)); T(rd(s[0], b, 9)))
	BOTH(T(rd(s[0], b, 9)); T(shutdown(s[0], SHUT_RD)); T(rd(s[0], b, 9)))
	/* A reset that the reader's own write brings. */
	BOTH(close(s[1]); s[1] = -1; signal(SIGPIPE, SIG_IGN); write(s[0], "x", 1); ms(20); T(write(s[0], "x", 1)); T(rd(s[0], b, 9)); T(rd(s[0], b, 9)))
}

static void modes(void)
{
	BOTH(
		T(rd(s[0], b, 9));
		unblock(s[0], 0);
		if (fork() == 0) { ms(60); feed(s[1], "late"); _exit(0); }
		long long t = now_ms();
		T(rd(s[0], b, 9)); Y(now_ms() - t >= 40);
		wait(NULL);
		FILL("blocking");
		T(rd(s[0], b, 3)); T(rd(s[0], b, 9));
		struct timeval tv = { 0, 30000 };
		setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
		T(rd(s[0], b, 9));
		unblock(s[0], 1);
		T(rd(s[0], b, 9));
		int on = 0;
		T(ioctl(s[0], FIONBIO, &on)); T(rd(s[0], b, 9)))
	int one = 1, s[2];
	char b[100];
	join(0, s);
	warm(s);
	FILL("cred");
	T(setsockopt(s[0], SOL_SOCKET, SO_PASSCRED, &one, sizeof one));
	T(rd(s[0], b, 2)); T(rd(s[0], b, 9));
}

static void other_files_by_the_same_number(void)
{
	BOTH(
		FILL("old");
		int n = s[0];
		int d = dup(n);
		T(close(n));
		T(rd(n, b, 9));
		T(dup2(s[1], n) == n);
		T(rd(n, b, 9));
		T(rd(d, b, 9)); S(b, 3);
		T(dup2(d, n) == n);
		FILL("again");
		int z = open("/dev/zero", O_RDONLY);
		T(dup2(z, n) == n);
		T(rd(n, b, 2)); S(b, 2);
		T(rd(d, b, 9)); S(b, 5);
		T(dup3(d, n, O_CLOEXEC) == n);
		FILL("range");
		T(close_range(n, n, 0));
		T(rd(n, b, 9)); T(rd(d, b, 9));
		close(z); s[0] = d)
}

static unsigned char *shared(size_t n)
{
	return mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

/* Several readers of numbered bytes: each is had by one. */
static int feeding[2];
static unsigned *had;
#define TOTAL 6000
static void *reader(void *p)
{
	(void)p;
	unsigned short v[3];
	for (;;) {
		if (!(readable(feeding[0], 2000) & POLLIN))
			continue;
		for (;;) {
			long n = rd(feeding[0], v, 2);
			if (n == 0)
				return NULL;
			if (n != 2)
				break;
			__atomic_fetch_add(&had[v[0]], 1, __ATOMIC_SEQ_CST);
		}
	}
}
static void feed_all(void)
{
	for (unsigned short i = 0; i < TOTAL; i++)
		while (write(feeding[1], &i, 2) != 2)
			usleep(100);
	shutdown(feeding[1], SHUT_WR);
}
static void sharing(void)
{
	had = (void *)shared(TOTAL * sizeof *had);
	for (int kind = 0; kind < 2; kind++)
		for (int threads = 0; threads < 2; threads++) {
			join(kind, feeding);
			warm(feeding);
			memset(had, 0, TOTAL * sizeof *had);
			pthread_t t[2];
			pid_t p[3];
			for (int i = 0; i < 2; i++)
				if (threads)
					pthread_create(&t[i], NULL, reader, NULL);
				else if ((p[i] = fork()) == 0) {
					reader(NULL);
					_exit(0);
				}
			if ((p[2] = fork()) == 0) {
				feed_all();
				_exit(0);
			}
			reader(NULL);
			for (int i = 0; i < 2; i++)
				if (threads)
					pthread_join(t[i], NULL);
			while (wait(NULL) > 0) {}
			long once = 0;
			for (int i = 0; i < TOTAL; i++)
				once += had[i] == 1;
			T(once);
			close(feeding[0]);
			close(feeding[1]);
		}
}

static int send_fd(int by, int fd)
{
	char c[CMSG_SPACE(sizeof fd)] = { 0 };
	struct iovec v = { "f", 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = c, .msg_controllen = sizeof c };
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(h), &fd, sizeof fd);
	return sendmsg(by, &m, 0);
}
static int receive_fd(int by)
{
	char c[CMSG_SPACE(sizeof(int))], x;
	struct iovec v = { &x, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = c, .msg_controllen = sizeof c };
	int fd = -1;
	if (recvmsg(by, &m, 0) == 1 && CMSG_FIRSTHDR(&m))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
	return fd;
}

static void given_away(void)
{
	BOTH(
		int by[2];
		socketpair(AF_UNIX, SOCK_STREAM, 0, by);
		pid_t p = fork();
		if (p == 0) {
			int fd = receive_fd(by[1]);
			T(rd(fd, b, 2)); S(b, 2);
			close(by[1]);
			_exit(0);
		}
		FILL("mine yours rest");
		T(rd(s[0], b, 5)); S(b, 5);
		long sent = send_fd(by[0], s[0]);
		waitpid(p, NULL, 0);
		T(sent);
		T(rd(s[0], b, 100)); S(b, 8);
		FILL("to my child");
		T(rd(s[0], b, 3));
		T(CHILD(long r = rd(s[0], b, 3); _exit(r == 3 && !memcmp(b, "my ", 3) ? 5 : 6)));
		T(rd(s[0], b, 9)); S(b, 5);
		T(rd(s[0], b, 9));
		T(CHILD(feed(s[1], "from the child")));
		T(rd(s[0], b, 90));
		/* A message with a file among bytes. */
		if (kind == 0) {
			FILL("ab");
			T(send_fd(s[1], 0));
			feed(s[1], "cd");
			T(rd(s[0], b, 1));
			struct iovec v = { b, 10 };
			char c[64];
			struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = c, .msg_controllen = sizeof c };
			T(recvmsg(s[0], &m, 0)); T(m.msg_controllen > 0);
			T(rd(s[0], b, 9));
		}
		close(by[0]); close(by[1]))
}

/* The writer is stopped by a full queue, and goes on by what is read. */
static void full_windows(void)
{
	BOTH(
		int size = 4096;
		setsockopt(s[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
		setsockopt(s[0], SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
		pid_t p = fork();
		if (p == 0) {
			char out[500];
			close(s[0]);
			unblock(s[1], 0);
			for (int i = 0; i < 300; i++) {
				memset(out, 'a' + i % 26, sizeof out);
				if (write(s[1], out, sizeof out) != sizeof out) _exit(1);
			}
			_exit(0);
		}
		close(s[1]);
		long total = 0;
		long wrong = 0;
		int step = 1;
		for (;;) {
			if (!readable(s[0], 5000)) { say("readable", "never"); break; }
			long n = rd(s[0], b, 1 + step++ * 37 % 900);
			if (n == 0) break;
			for (long i = 0; i < n; i++) wrong += b[i] != 'a' + (total + i) / 500 % 26;
			if (n > 0) total += n;
			if (step % 64 == 0) ms(1);
		}
		T(total); T(wrong);
		int st; waitpid(p, &st, 0); T(st);
		s[1] = -1)
	int s[2];
	char b[100];
	join(0, s);
	warm(s);
	FILL("12345678");
	T(rd(s[0], b, 5));
	int n = 0, before;
	/* What the writer sees of it. */
	ioctl(s[1], SIOCOUTQ, &before);
	rd(s[0], b, 3);
	T(ioctl(s[1], SIOCOUTQ, &n)); Y(n < before || before == 0);
}

static volatile long hits, outside_hits, inner;
extern char __executable_start, etext;
static int handled[2];
static void on_signal(int sig, siginfo_t *i, void *p)
{
	(void)sig; (void)i;
	ucontext_t *u = p;
	char *ip = (char *)u->uc_mcontext.gregs[REG_RIP];
	int e = errno;
	char c;
	hits++;
	outside_hits += ip >= (char *)0x7ffe00000000 && ip < (char *)0x7fff00000000 && !(ip >= (char *)p - 0x800000 && ip < (char *)p);
	/* Reads here, too. */
	if (handled[0] > 0 && rd(handled[0], &c, 1) == 1)
		inner++;
	errno = e;
}
static void signals(void)
{
	struct sigaction sa = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART };
	sigaction(SIGALRM, &sa, NULL);
	BOTH(
		handled[0] = s[0];
		inner = hits = 0;
		struct itimerval it = { { 0, 150 }, { 0, 150 } };
		setitimer(ITIMER_REAL, &it, NULL);
		long got = 0;
		long sent = 0;
		for (int i = 0; i < 3000 || hits < 50; i++) {
			if (write(s[1], "0123456789", 10) == 10) sent += 10;
			readable(s[0], 10);
			long n;
			while ((n = rd(s[0], b, 3)) > 0) got += n;
		}
		struct itimerval off = { 0 };
		setitimer(ITIMER_REAL, &off, NULL);
		long n;
		while ((n = rd(s[0], b, 100)) > 0) got += n;
		handled[0] = -1;
		Y(got + inner == sent); Y(outside_hits == 0))
	/* And changes of an epoll between them: none is lost or done twice. */
	int s[2], ep = epoll_create1(0);
	join(0, s);
	struct itimerval it = { { 0, 150 }, { 0, 150 } }, off = { 0 };
	long bad = 0;
	hits = 0;
	setitimer(ITIMER_REAL, &it, NULL);
	for (int i = 0; i < 20000 || hits < 50; i++) {
		bad += ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLIN) != 0;
		bad += ctl(ep, EPOLL_CTL_MOD, s[0], EPOLLIN | EPOLLOUT) != 0;
		bad += ctl(ep, EPOLL_CTL_DEL, s[0], 0) != 0;
	}
	setitimer(ITIMER_REAL, &off, NULL);
	T(bad);
}

/* All registers but rax, rcx and r11, and the flags, are as before; whatever the direction flag. */
static void registers(void)
{
	BOTH(
		static unsigned long after[7];
		long wrong = 0;
		for (int i = 0; i < OFTEN; i++) {
			memset(b, '-', 64);
			FILL("0123456789abcdefghijklmnopqrstuvwxyz");
			unsigned long flags = 0x202 | (i & 1) | (i & 2) << 1 | (i & 4) << 2 | (i & 8) << 3 | (i & 16) << 3 | (i & 32) << 6 | (i & 64) << 4;
			register long r8 asm("r8") = 0x8888;
			register long r9 asm("r9") = 0x9999;
			register long r10 asm("r10") = 0x1010;
			long r; long rdi = s[0]; void *rsi = b + 8; long rdx = 21;
			asm volatile("push %[f]; popf; mov $0, %%eax; syscall; pushf; pop %[f]; cld"
				: "=&a"(r), [f] "+b"(flags), "+D"(rdi), "+S"(rsi), "+d"(rdx), "+r"(r8), "+r"(r9), "+r"(r10) :: "rcx", "r11", "memory", "cc");
			after[0] = rdi == s[0] && rsi == b + 8 && rdx == 21 && r8 == 0x8888 && r9 == 0x9999 && r10 == 0x1010;
			unsigned long want = 0x202 | (i & 1) | (i & 2) << 1 | (i & 4) << 2 | (i & 8) << 3 | (i & 16) << 3 | (i & 32) << 6 | (i & 64) << 4;
			wrong += !after[0] || flags != want || r != 21 || memcmp(b, "--------0123456789abcdefghijk--------", 37);
			wrong += rd(s[0], b, 100) != 15 || memcmp(b, "lmnopqrstuvwxyz", 15);
		}
		T(wrong))
}

static void vforked(void)
{
	BOTH(
		FILL("parent's");
		T(rd(s[0], b, 2));
		pid_t p = vfork();
		if (p == 0) {
			close(s[0]);
			open("/dev/zero", O_RDONLY);
			char c = 'x';
			_exit(rd(s[0], &c, 1) == 1 && c == 0 ? 3 : 4);
		}
		int st; waitpid(p, &st, 0); T(WEXITSTATUS(st));
		T(rd(s[0], b, 9)); S(b, 6);
		T(rd(s[0], b, 9)))
}

static int own_files(void *p)
{
	int *s = p;
	char c = 'x';
	unshare(CLONE_FILES);
	close(s[0]);
	open("/dev/zero", O_RDONLY);
	return rd(s[0], &c, 1) == 1 && c == 0 ? 3 : 4;
}
static void *own_files_thread(void *p)
{
	return (void *)(long)own_files(p);
}
static void tables(void)
{
	BOTH(
		FILL("everybody's");
		T(rd(s[0], b, 2));
		pthread_t t;
		void *r;
		pthread_create(&t, NULL, own_files_thread, s);
		pthread_join(t, &r);
		T((long)r);
		T(rd(s[0], b, 90)); S(b, 9))
}

static void filtered(void)
{
	for (int nr = 0; nr < 2; nr++)
		T(CHILD(BOTH(
			FILL("secret");
			struct sock_filter code[] = {
				{ BPF_LD | BPF_W | BPF_ABS, 0, 0, 0 },
				{ BPF_JMP | BPF_JEQ | BPF_K, 0, 1, nr ? SYS_recvfrom : SYS_read },
				{ BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENOTNAM },
				{ BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW } };
			struct sock_fprog prog = { 4, code };
			prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
			prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
			T(rd(s[0], b, 2)); T(rv(s[0], b, 2, 0));
			_exit(0))));
}

/* ---- much, in pieces, and how much there is ---- */

__attribute__((noinline)) static long many(int fd, unsigned cmd, int *n)
{
	return ret(CALL(SYS_ioctl, "", "D"((long)fd), "S"((long)cmd), "d"(n)));
}

#define ALL (6 << 20)
static unsigned char stream_byte(long i)
{
	return i * 31 + (i >> 8) * 7 + (i >> 16);
}
static void *stream(void *fd)
{
	static unsigned char b[300000];
	for (long at = 0; at < ALL;) {
		long n = ALL - at < (long)sizeof b ? ALL - at : (long)sizeof b;
		n = at % 3 ? n : n % 7001 + 1;
		for (long i = 0; i < n; i++)
			b[i] = stream_byte(at + i);
		struct pollfd p = { (long)fd, POLLOUT, 0 };
		poll(&p, 1, 1000);
		n = write((long)fd, b, n);
		at += n > 0 ? n : 0;
	}
	return NULL;
}

static void streams(void)
{
	BOTH(
		long at = 0; long bad = 0; long lied = 0; long short_ = 0; int pieces[3] = { 512, 8192, 4096 };
		pthread_t t;
		pthread_create(&t, NULL, stream, (void *)(long)s[1]);
		for (long i = 0; at < ALL; i++) {
			int n = 0; int len = pieces[at * 3 / ALL];
			readable(s[0], 1000);
			do {
				lied += many(s[0], FIONREAD, &n) != 0;
				long got = i % 5 ? rd(s[0], b, len) : rv(s[0], b, len, 0);
				short_ += got < (n < len ? n : len) && !(got == -1 && n == 0);
				for (long k = 0; k < got; k++)
					bad += (unsigned char)b[k] != stream_byte(at + k);
				at += got > 0 ? got : 0;
				lied += got < 0 && (errno != EAGAIN || many(s[0], FIONREAD, &n) != 0);
				if (got < 0) break;
			} while (1);
		}
		pthread_join(t, NULL);
		T(at); T(bad); T(lied); T(short_);
		T(many(s[0], FIONREAD, &pieces[0])); T(pieces[0]);
		T(rd(s[0], b, 1)))
}

/* Bytes wait, and a part is taken: the count is that of all that is left, however it is asked for. */
static void counts(void)
{
	BOTH(
		int n = 0; long bad = 0;
		char *much = calloc(1, 50000);
		for (int i = 0; i < OFTEN; i++) {
			bad += write(s[1], much, 50000) != 50000;
			readable(s[0], 1000);
			for (int left = 50000; left > 0; left -= 5000) {
				bad += many(s[0], FIONREAD, &n) != 0 || n != left;
				bad += rd(s[0], b, 5000) != 5000;
			}
			bad += many(s[0], FIONREAD, &n) != 0 || n != 0;
		}
		T(bad);
		bad = write(s[1], much, 50000); readable(s[0], 1000); rd(s[0], b, 5000); rd(s[0], b, 5000);
		T(many(s[0], FIONREAD, NULL)); T(many(s[0], FIONREAD, (int *)-4096L)); T(many(s[0], FIONREAD, (int *)0x7fffffffeffeUL));
		T(many(s[0], 0x7777, &n)); T(many(-1, FIONREAD, &n)); T(many(900, FIONREAD, &n));
		T(ioctl(s[0], FIONREAD, &n)); T(n);
		T(rd(s[0], NULL, 5000)); T(rd(s[0], (void *)-8192L, 8192));
		T(many(s[0], FIONREAD, &n)); T(n);
		T(shutdown(s[1], SHUT_WR)); T(many(s[0], FIONREAD, &n)); T(n);
		char *rest = malloc(60000);
		T(rd(s[0], rest, 60000)); T(rd(s[0], rest, 60000)); T(many(s[0], FIONREAD, &n)); T(n))
}

/* A filter that looks at a command of ioctl's holds for what is told without a call, too. */
static void counts_filtered(void)
{
	for (int by_thread = 0; by_thread < 2; by_thread++)
		T(CHILD(BOTH(
			int n = 0; long bad = 0;
			for (int i = 0; i < OFTEN; i++) {
				feed(s[1], "0123456789");
				readable(s[0], 1000);
				bad += many(s[0], FIONREAD, &n) != 0 || n != 10;
				bad += rd(s[0], b, 64) != 10;
				bad += rd(s[0], b, 64) != -1;
			}
			T(bad);
			FILL("secret");
			struct sock_filter code[] = {
				{ BPF_LD | BPF_W | BPF_ABS, 0, 0, 0 },
				{ BPF_JMP | BPF_JEQ | BPF_K, 0, 3, SYS_ioctl },
				{ BPF_LD | BPF_W | BPF_ABS, 0, 0, 24 },
				{ BPF_JMP | BPF_JEQ | BPF_K, 0, 1, FIONREAD },
				{ BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENOTNAM },
				{ BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW } };
			struct sock_fprog prog = { 6, code };
			prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
			T((int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, by_thread ? SECCOMP_FILTER_FLAG_TSYNC : 0, &prog));
			T(many(s[0], FIONREAD, &n)); T(rd(s[0], b, 2)); T(many(s[0], FIONREAD, &n));
			FILL("more");
			T(many(s[0], FIONREAD, &n)); T(rd(s[0], b, 64)); T(many(s[0], FIONREAD, &n));
			_exit(0))));
}

/* ---- epoll ---- */

static long events_of(int ep, int max)
{
	struct epoll_event e[8];
	long v = 0;
	int n = epoll_wait(ep, e, max, 0);
	for (int i = 0; i < n; i++)
		v = v * 1000 + e[i].events;
	return n < 0 ? -1 : v;
}

static void loops(void)
{
	BOTH(
		long bad = 0;
		int ep = epoll_create1(0);
		for (int et = 0; et < 2; et++) {
			unsigned in = EPOLLIN | (et ? EPOLLET : 0);
			for (int i = 0; i < OFTEN; i++) {
				bad += ctl(ep, EPOLL_CTL_ADD, s[0], in) != 0;
				feed(s[1], "request");
				struct epoll_event e = { 0 };
				bad += epoll_wait(ep, &e, 1, 1000) != 1 || e.events != EPOLLIN || e.data.u64 != 0x100000000ULL * s[0] + 7;
				bad += rd(s[0], b, 64) != 7;
				if (et) bad += rd(s[0], b, 64) != -1 || errno != EAGAIN;
				bad += epoll_wait(ep, &e, 1, 0) != 0;
				bad += ctl(ep, EPOLL_CTL_MOD, s[0], EPOLLOUT) != 0;
				bad += epoll_wait(ep, &e, 1, 0) != 1 || e.events != EPOLLOUT;
				bad += ctl(ep, EPOLL_CTL_DEL, s[0], 0) != 0;
				bad += epoll_wait(ep, &e, 1, 0) != 0;
			}
		}
		T(bad);
		close(ep))
}

/* An epoll whose changes may be laid aside. */
static int warm_epoll(int fd)
{
	int ep = epoll_create1(0);
	long bad = 0;
	for (int i = 0; i < OFTEN; i++) {
		bad += ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN) != 0;
		bad += ctl(ep, EPOLL_CTL_DEL, fd, 0) != 0;
	}
	T(bad);
	return ep;
}

static void changes(void)
{
	BOTH(
		int ep = warm_epoll(s[0]);
		T(ctl(ep, EPOLL_CTL_DEL, s[0], 0)); T(ctl(ep, EPOLL_CTL_MOD, s[0], EPOLLIN));
		T(ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLIN)); T(ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLIN));
		T(ctl(ep, EPOLL_CTL_MOD, s[0], EPOLLIN | EPOLLEXCLUSIVE)); T(ctl(ep, 4, s[0], 0)); T(ctl(ep, 0, s[0], 0));
		T(ctl(ep, EPOLL_CTL_ADD, -1, EPOLLIN)); T(ctl(-1, EPOLL_CTL_ADD, s[0], EPOLLIN)); T(ctl(-2, EPOLL_CTL_MOD, s[0], EPOLLIN));
		T(ctl(s[1], EPOLL_CTL_MOD, s[0], EPOLLIN)); T(ctl(ep, EPOLL_CTL_ADD, ep, EPOLLIN));
		T(ctl_at(ep, EPOLL_CTL_MOD, s[0], (void *)8)); T(ctl_at(ep, EPOLL_CTL_MOD, s[0], NULL)); T(ctl_at(ep, EPOLL_CTL_MOD, s[0], (void *)-64L));
		feed(s[1], "x");
		T(events_of(ep, 8));
		/* Without an event to read. */
		T(ctl_at(ep, EPOLL_CTL_DEL, s[0], (void *)8));
		T(events_of(ep, 8));
		T(ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLIN | EPOLLET)); T(events_of(ep, 8)); T(events_of(ep, 8));
		T(ctl(ep, EPOLL_CTL_MOD, s[0], EPOLLIN | EPOLLET)); T(events_of(ep, 8)); T(events_of(ep, 8));
		T(ctl(ep, EPOLL_CTL_MOD, s[0], EPOLLIN | EPOLLET)); T(rd(s[0], b, 9)); T(events_of(ep, 8));
		T(ctl(ep, EPOLL_CTL_MOD, s[0], EPOLLIN | EPOLLONESHOT)); feed(s[1], "y"); T(events_of(ep, 8));
		feed(s[1], "z"); T(events_of(ep, 8));
		T(ctl(ep, EPOLL_CTL_MOD, s[0], EPOLLIN | EPOLLONESHOT)); T(events_of(ep, 8)); T(events_of(ep, 8));
		/* More than anybody would let lie. */
		long bad = 0;
		for (int i = 0; i < 1001; i++) bad += ctl(ep, EPOLL_CTL_MOD, s[0], i & 1 ? EPOLLOUT : EPOLLIN) != 0;
		T(bad); T(events_of(ep, 8));
		T(ctl(ep, EPOLL_CTL_MOD, s[0], EPOLLOUT)); T(readable(ep, 0)); T(events_of(ep, 8));
		/* The descriptor is another's. */
		int d = dup(s[1]);
		T(dup2(d, s[0]) == s[0]); T(ctl(ep, EPOLL_CTL_MOD, s[0], EPOLLIN)); T(ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLOUT)); T(ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLOUT));
		T(close(s[0])); T(ctl(ep, EPOLL_CTL_DEL, s[0], 0)); T(events_of(ep, 8));
		/* The epoll is. */
		int other = epoll_create1(0);
		join(kind, s); T(ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLOUT));
		T(dup2(other, ep) == ep); T(ctl(ep, EPOLL_CTL_MOD, s[0], EPOLLOUT)); T(events_of(ep, 8));
		close(ep); T(ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLOUT)); T(ctl(other, EPOLL_CTL_ADD, s[0], EPOLLOUT)); T(events_of(other, 8));
		close(other); close(d))
}

static void fdinfo(int pid, int fd)
{
	char path[64];
	char line[256];
	snprintf(path, sizeof path, "/proc/%d/fdinfo/%d", pid, fd);
	FILE *f = fopen(path, "r");
	int n = 0;
	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, "tfd:", 4)) {
			unsigned events = 0;
			sscanf(strstr(line, "events:"), "events: %x", &events);
			say("fdinfo", "%x", events);
			n++;
		}
	if (f)
		fclose(f);
	T(n);
}

static void seen_by_others(void)
{
	BOTH(
		int ep = warm_epoll(s[0]);
		volatile int *turn = (void *)shared(4096);
		pid_t me = getpid();
		pid_t p = fork();
		if (p == 0) {
			/* Not by a call: the other one goes on. */
			close(ep);
			while (turn[0] < 1) usleep(100);
			fdinfo(me, ep);
			turn[1] = 1;
			while (turn[0] < 2) usleep(100);
			int pfd = syscall(SYS_pidfd_open, me, 0);
			int got = syscall(SYS_pidfd_getfd, pfd, ep, 0);
			T(got >= 0); T(events_of(got, 8));
			turn[1] = 2;
			while (turn[0] < 3) usleep(100);
			T(events_of(got, 8));
			turn[1] = 3;
			_exit(0);
		}
		ms(30);
		for (int i = 0; i < 300; i++) { ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLIN); ctl(ep, EPOLL_CTL_DEL, s[0], 0); }
		ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLOUT);
		turn[0] = 1;
		while (turn[1] < 1) {}
		ctl(ep, EPOLL_CTL_MOD, s[0], EPOLLIN | EPOLLOUT);
		turn[0] = 2;
		while (turn[1] < 2) {}
		ctl(ep, EPOLL_CTL_DEL, s[0], 0);
		turn[0] = 3;
		while (turn[1] < 3) {}
		wait(NULL);
		close(ep))
	BOTH(
		int ep = warm_epoll(s[0]);
		ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLOUT);
		T(CHILD(_exit(events_of(ep, 8) == EPOLLOUT ? 1 : 2)));
		T(ctl(ep, EPOLL_CTL_MOD, s[0], EPOLLIN));
		T(CHILD(_exit(events_of(ep, 8) == 0 ? 1 : 2)));
		int d = dup(ep);
		T(ctl(ep, EPOLL_CTL_MOD, s[0], EPOLLOUT)); T(events_of(d, 8)); T(ctl(d, EPOLL_CTL_DEL, s[0], 0)); T(ctl(ep, EPOLL_CTL_DEL, s[0], 0));
		close(d);
		int by[2];
		socketpair(AF_UNIX, SOCK_STREAM, 0, by);
		for (int i = 0; i < 20; i++) { ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLIN); ctl(ep, EPOLL_CTL_DEL, s[0], 0); }
		ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLOUT);
		T(send_fd(by[0], ep));
		ctl(ep, EPOLL_CTL_MOD, s[0], EPOLLIN);
		d = receive_fd(by[1]);
		T(events_of(d, 8)); ctl(ep, EPOLL_CTL_MOD, s[0], EPOLLOUT); T(events_of(d, 8)); T(events_of(d, 8));
		close(d); close(by[0]); close(by[1]);
		/* Watched by another epoll. */
		int outer = epoll_create1(0);
		for (int i = 0; i < 20; i++) { ctl(ep, EPOLL_CTL_DEL, s[0], 0); ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLIN); }
		T(ctl(outer, EPOLL_CTL_ADD, ep, EPOLLIN)); T(events_of(outer, 8));
		T(ctl(ep, EPOLL_CTL_MOD, s[0], EPOLLOUT)); T(events_of(outer, 8));
		T(ctl(outer, EPOLL_CTL_DEL, ep, 0)); close(outer);
		/* It ends with changes that nobody took: in who has the epoll, too. */
		T(CHILD(int other = warm_epoll(s[0]); ctl(other, EPOLL_CTL_ADD, s[0], EPOLLOUT); raise(SIGKILL)));
		T(events_of(ep, 8));
		close(ep))
}

static void *waits(void *p)
{
	struct epoll_event e;
	int n = epoll_wait((int)(long)p, &e, 1, 3000);
	return (void *)(long)(n == 1 ? e.events : -1);
}
static void threads(void)
{
	BOTH(
		int ep = warm_epoll(s[0]);
		for (int i = 0; i < 5; i++) {
			pthread_t t;
			void *r;
			ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLIN);
			pthread_create(&t, NULL, waits, (void *)(long)ep);
			ms(5);
			ctl(ep, EPOLL_CTL_MOD, s[0], EPOLLOUT);
			long long until = now_ms() + 4000;
			while (pthread_tryjoin_np(t, &r) && now_ms() < until) {}
			T((long)r);
			T(ctl(ep, EPOLL_CTL_DEL, s[0], 0));
		}
		close(ep))
}

/* Others who have the set only while this task is in a call, and change it. */
static int the_set, the_socket;
static void *adds(void *p)
{
	struct epoll_event e[4];
	(void)p;
	long bad = ctl(the_set, EPOLL_CTL_ADD, the_socket, EPOLLIN) != 0;
	bad += epoll_wait(the_set, e, 4, 2000) != 1;
	bad += ctl(the_set, EPOLL_CTL_ADD, the_socket, EPOLLIN) != -1 || errno != EEXIST;
	return (void *)bad;
}
static int adds_and_ends(void *p)
{
	_exit((long)adds(p));
}
static void known(int ep, int fd)
{
	for (int i = 0; i < 3; i++) {
		ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN);
		ctl(ep, EPOLL_CTL_DEL, fd, 0);
	}
}
static void others_for_a_moment(void)
{
	static char stack[65536];
	enum { THREAD, SHARES, VFORK, FORK, KINDS };
	for (int how = 0; how < KINDS; how++) {
		BOTH(
			int ep = warm_epoll(s[0]);
			long bad = 0;
			the_set = ep;
			the_socket = s[0];
			feed(s[1], "x");
			ctl(ep, EPOLL_CTL_DEL, s[0], 0);
			for (int i = 0; i < 60; i++) {
				void *r = NULL;
				int status = 0;
				pthread_t t;
				pid_t child;
				known(ep, s[0]);
				if (how == THREAD) {
					pthread_create(&t, NULL, adds, NULL);
					pthread_join(t, &r);
				} else {
					if (how == SHARES)
						child = clone(adds_and_ends, stack + sizeof stack, CLONE_VM | CLONE_FILES | CLONE_VFORK | SIGCHLD, NULL);
					else if ((child = syscall(SYS_clone, (how == VFORK ? CLONE_VFORK : 0) | SIGCHLD, 0, 0, 0, 0)) == 0)
						adds_and_ends(NULL);
					waitpid(child, &status, 0);
				}
				bad += r != NULL || status != 0;
				bad += ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLIN) != -1 || errno != EEXIST;
				bad += ctl(ep, EPOLL_CTL_DEL, s[0], 0) != 0;
			}
			T(bad);
			close(ep))
	}
}

static void executed(void)
{
	BOTH(
		int ep = warm_epoll(s[0]);
		FILL("kept");
		char name[64];
		sprintf(name, "%d,%d", ep, s[0]);
		T(CHILD(
			int own = warm_epoll(s[0]);
			dup2(own, ep);
			ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLIN);
			rd(s[0], b, 1);
			execl("/proc/self/exe", "read_slots", "=", name, NULL)));
		T(rd(s[0], b, 9));
		close(ep))
}

static const struct check all[] = {
	CHECK(plain), CHECK(bad_buffers), CHECK(ends), CHECK(modes), CHECK(other_files_by_the_same_number), CHECK(sharing),
	CHECK(given_away), CHECK(full_windows), CHECK(signals), CHECK(registers), CHECK(vforked), CHECK(tables),
	CHECK(filtered), CHECK(streams), CHECK(counts), CHECK(counts_filtered), CHECK(loops), CHECK(changes), CHECK(seen_by_others), CHECK(threads), CHECK(others_for_a_moment),
	CHECK(executed),
};

int main(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[1], "=")) {
		int ep, fd;
		char b[9];
		current = "executed";
		sscanf(argv[2], "%d,%d", &ep, &fd);
		T(events_of(ep, 8));
		T(rd(fd, b, 2)); S(b, 2);
		return 0;
	}
	return run_all(argc, argv, all, sizeof all / sizeof *all);
}
