/* POSIX message queues: mq_open(2) and its kin, the mqueue file system, limits. */
#define AREA "mqueue"
#include "check.h"
#include <linux/netlink.h>
#include <mqueue.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/statfs.h>

/* The system calls themselves: the library looks at names first. */
static int sys_open(const char *name, int flags, int mode, const void *attr)
{
	return syscall(SYS_mq_open, name, flags, mode, attr);
}
static int sys_unlink(const char *name) { return syscall(SYS_mq_unlink, name); }
static long put_message(int q, const char *text, unsigned prio)
{
	return syscall(SYS_mq_timedsend, q, text, strlen(text), prio, NULL);
}
static char got[9000];
static unsigned got_prio;
static long take(int q, size_t room)
{
	memset(got, 0, 64);
	got_prio = 77777;
	return syscall(SYS_mq_timedreceive, q, got, room, &got_prio, NULL);
}

/* An ipc namespace of its own, where nobody else's queues are; and no rights beyond root's. */
static int own_space(void)
{
	if (geteuid() != 0 || unshare(CLONE_NEWIPC)) {
		say("own_space", "needs root");
		return 0;
	}
	return 1;
}

static int queue(const char *name, int flags, long max, long size)
{
	struct mq_attr a = { .mq_maxmsg = max, .mq_msgsize = size };
	return sys_open(name, flags | O_CREAT, 0600, &a);
}

static void names(void)
{
	if (!own_space())
		return;
	char longest[300];
	memset(longest, 'n', sizeof longest);
	longest[255] = 0;
	T(sys_open("", O_CREAT | O_RDWR, 0600, NULL));
	T(sys_open("/a", O_CREAT | O_RDWR, 0600, NULL));
	T(sys_open("a/b", O_CREAT | O_RDWR, 0600, NULL));
	T(sys_open(".", O_RDWR, 0600, NULL));
	T(sys_open("..", O_CREAT | O_RDWR, 0600, NULL));
	T(sys_open("...", O_CREAT | O_RDWR, 0600, NULL) >= 0);
	T(sys_open(longest, O_CREAT | O_RDWR, 0600, NULL) >= 0);
	T(sys_unlink(longest));
	longest[255] = 'n', longest[256] = 0;
	T(sys_open(longest, O_CREAT | O_RDWR, 0600, NULL));
	T(sys_unlink(longest));
	T(sys_open((void *)8, O_CREAT | O_RDWR, 0600, NULL));
	T(sys_open("x", O_RDWR, 0600, NULL));
	T(sys_open("x", O_CREAT | O_RDWR, 0600, (void *)8));
	T(sys_open("x", O_RDWR, 0600, (void *)8));
	T(sys_unlink("x"));
	T(sys_unlink(""));
	T(sys_unlink("/"));
	T(sys_unlink("."));
	T(sys_unlink((void *)8));
	T(sys_unlink("..."));
	/* The library's. */
	T(mq_open("a", O_CREAT | O_RDWR, 0600, NULL));
	T(mq_open("/", O_CREAT | O_RDWR, 0600, NULL));
	T(mq_open("/a/b", O_CREAT | O_RDWR, 0600, NULL));
	T(mq_open("/ok", O_CREAT | O_RDWR, 0600, NULL) >= 0);
	T(mq_unlink("ok"));
	T(mq_unlink("/ok"));
	T(mq_unlink("/ok"));
	/* A full table of descriptors comes before the name. */
	struct rlimit none = { 0, 0 };
	setrlimit(RLIMIT_NOFILE, &none);
	T(sys_open("a/b", O_CREAT | O_RDWR, 0600, NULL));
	T(sys_open("", O_CREAT | O_RDWR, 0600, NULL));
}

static void opening(void)
{
	if (!own_space())
		return;
	int q = queue("q", O_RDWR | O_EXCL, 3, 32);
	T(q >= 0);
	T(fcntl(q, F_GETFD));
	T(fcntl(q, F_GETFL) & (O_ACCMODE | O_NONBLOCK | O_CREAT | O_EXCL));
	T(queue("q", O_RDWR | O_EXCL, 3, 32));
	T(queue("q", O_RDWR, 5, 64) >= 0);
	T(sys_open("q", 3, 0, NULL));
	T(sys_open("q", O_CREAT | O_EXCL | 3, 0, NULL));
	T(sys_open("none", 3, 0, NULL));
	int both = sys_open("odd", O_CREAT | 3, 0600, NULL);
	T(both >= 0);
	T(put_message(both, "x", 0));
	T(take(both, 8192));
	int r = sys_open("q", O_RDONLY | O_NONBLOCK, 0, NULL), w = sys_open("q", O_WRONLY, 0, NULL);
	T(fcntl(r, F_GETFL) & (O_ACCMODE | O_NONBLOCK));
	T(put_message(r, "x", 0));
	T(take(w, 64));
	T(put_message(w, "x", 0));
	T(take(r, 64));
	T(take(r, 64));
	/* What is no queue. */
	int p[2];
	T(pipe(p));
	T(put_message(p[1], "x", 0));
	T(take(p[0], 64));
	T(put_message(-1, "x", 0));
	T(take(999, 64));
	struct mq_attr a;
	T(syscall(SYS_mq_getsetattr, p[0], NULL, &a));
	T(syscall(SYS_mq_getsetattr, -1, NULL, &a));
	T(syscall(SYS_mq_notify, p[0], NULL));
	T(syscall(SYS_mq_notify, -1, NULL));
	/* A queue is no file to read messages from, or to map. */
	T(write(w, "x", 1));
	T(read(w, got, 10));
	T((long)mmap(NULL, 4096, PROT_READ, MAP_SHARED, q, 0));
	T(fallocate(q, 0, 0, 10));
	T(fsync(q));
	T(lseek(q, 0, SEEK_END));
	T(lseek(q, 5, SEEK_SET));
	/* Gone, but open. */
	T(sys_unlink("q"));
	T(sys_open("q", O_RDWR, 0, NULL));
	T(put_message(q, "still", 1));
	T(take(r, 64));
	S(got, 5);
	T(queue("q", O_RDWR | O_EXCL, 2, 8) >= 0);
	T(put_message(q, "old", 1));
	T(take(sys_open("q", O_RDONLY | O_NONBLOCK, 0, NULL), 8));
}

static void attributes(void)
{
	if (!own_space())
		return;
	int q = queue("q", O_RDWR, 4, 50);
	struct mq_attr a, b;
	memset(&a, 0xff, sizeof a);
	T(syscall(SYS_mq_getsetattr, q, NULL, &a));
	T(a.mq_flags);
	T(a.mq_maxmsg);
	T(a.mq_msgsize);
	T(a.mq_curmsgs);
	put_message(q, "one", 0);
	put_message(q, "two", 0);
	b = (struct mq_attr){ .mq_flags = O_NONBLOCK, .mq_maxmsg = 99, .mq_msgsize = 1, .mq_curmsgs = 7 };
	T(syscall(SYS_mq_getsetattr, q, &b, &a));
	T(a.mq_flags);
	T(a.mq_curmsgs);
	T(fcntl(q, F_GETFL) & O_NONBLOCK);
	T(syscall(SYS_mq_getsetattr, q, NULL, &a));
	T(a.mq_flags == O_NONBLOCK);
	T(a.mq_maxmsg);
	b.mq_flags = O_NONBLOCK | O_APPEND;
	T(syscall(SYS_mq_getsetattr, q, &b, &a));
	b.mq_flags = 1;
	T(syscall(SYS_mq_getsetattr, -1, &b, &a));
	b.mq_flags = 0;
	T(syscall(SYS_mq_getsetattr, q, &b, NULL));
	T(fcntl(q, F_GETFL) & O_NONBLOCK);
	T(syscall(SYS_mq_getsetattr, q, NULL, NULL));
	T(syscall(SYS_mq_getsetattr, q, (void *)8, NULL));
	T(syscall(SYS_mq_getsetattr, q, NULL, (void *)8));
	/* What a new queue may be, without rights. */
	drop_root();
	T(queue("p", O_RDWR, 10, 8192) >= 0);
	T(queue("p1", O_RDWR, 11, 1));
	T(queue("p1", O_RDWR, 1, 8193));
	T(queue("p1", O_RDWR, 0, 1));
	T(queue("p1", O_RDWR, 1, 0));
	T(queue("p1", O_RDWR, -1, 1));
	T(queue("p1", O_RDWR, 1, -1));
	T(queue("p1", O_RDWR, LONG_MAX, LONG_MAX));
	T(queue("p", O_RDWR, 11, 1) >= 0);
	int d = sys_open("default", O_CREAT | O_RDWR, 0600, NULL);
	T(syscall(SYS_mq_getsetattr, d, NULL, &a));
	T(a.mq_maxmsg);
	T(a.mq_msgsize);
}

static void transfer(void)
{
	if (!own_space())
		return;
	int q = queue("q", O_RDWR | O_NONBLOCK, 6, 16);
	T(put_message(q, "low", 1));
	T(put_message(q, "high", 32767));
	T(put_message(q, "low again", 1));
	T(put_message(q, "zero", 0));
	T(put_message(q, "", 5));
	T(put_message(q, "high again", 32767));
	T(put_message(q, "no room", 1));
	for (int i = 0; i < 6; i++) {
		T(take(q, 16));
		S(got, 12);
		T(got_prio);
	}
	T(take(q, 16));
	T(got_prio);
	/* Sizes. */
	T(put_message(q, "0123456789abcdef", 0));
	T(put_message(q, "0123456789abcdefg", 0));
	T(take(q, 15));
	T(take(q, 0));
	T(take(q, 17));
	T(put_message(q, "x", 32768));
	T(put_message(q, "x", -1));
	T(put_message(-1, "x", 32768));
	T(syscall(SYS_mq_timedsend, q, (void *)8, 4, 0, NULL));
	T(syscall(SYS_mq_timedsend, q, (void *)8, 17, 0, NULL));
	T(syscall(SYS_mq_timedsend, q, (void *)8, 0, 0, NULL));
	T(take(q, 16));
	/* A message that cannot be given out is gone. */
	put_message(q, "lost", 3);
	T(syscall(SYS_mq_timedreceive, q, (void *)8, 16, NULL, NULL));
	T(take(q, 16));
	put_message(q, "lost", 3);
	T(syscall(SYS_mq_timedreceive, q, got, 16, (void *)8, NULL));
	T(take(q, 16));
	put_message(q, "quiet", 3);
	T(syscall(SYS_mq_timedreceive, q, got, 16, NULL, NULL));
	S(got, 5);
	/* Through a descriptor that came by fork and by a message. */
	put_message(q, "inherited", 2);
	T(CHILD(_exit(take(q, 16))));
	int s[2];
	socketpair(AF_UNIX, SOCK_STREAM, 0, s);
	char control[CMSG_SPACE(4)] = { 0 };
	struct iovec iov = { "x", 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(4);
	memcpy(CMSG_DATA(c), &q, 4);
	T(sendmsg(s[0], &m, 0));
	char byte;
	iov.iov_base = &byte;
	T(recvmsg(s[1], &m, 0));
	int q2;
	memcpy(&q2, CMSG_DATA(CMSG_FIRSTHDR(&m)), 4);
	put_message(q2, "passed", 2);
	T(take(q, 16));
	S(got, 6);
}

static struct timespec in_ms(int n)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += n * 1000000L;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	return t;
}

static void noted(int s) {}

static void waiting(void)
{
	if (!own_space())
		return;
	int q = queue("q", O_RDWR, 1, 16);
	struct timespec t = in_ms(30), past = { 0, 0 }, bad = { 1, 1000000000 }, negative = { -1, 0 };
	long long began = now_ms();
	T(syscall(SYS_mq_timedreceive, q, got, 16, NULL, &t));
	Y(now_ms() - began >= 29);
	T(syscall(SYS_mq_timedreceive, q, got, 16, NULL, &past));
	T(syscall(SYS_mq_timedreceive, q, got, 16, NULL, &bad));
	T(syscall(SYS_mq_timedreceive, q, got, 16, NULL, &negative));
	T(syscall(SYS_mq_timedreceive, q, got, 16, NULL, (void *)8));
	T(syscall(SYS_mq_timedreceive, -1, got, 16, NULL, &bad));
	T(syscall(SYS_mq_timedreceive, -1, got, 1, NULL, &past));
	/* There is something, or room: the time does not count, but what is none is refused. */
	T(syscall(SYS_mq_timedsend, q, "now", 3, 0, &past));
	T(syscall(SYS_mq_timedsend, q, "now", 3, 0, &past));
	T(syscall(SYS_mq_timedsend, q, "now", 3, 40000, &bad));
	t = in_ms(20);
	T(syscall(SYS_mq_timedsend, q, "full", 4, 0, &t));
	T(syscall(SYS_mq_timedreceive, q, got, 16, NULL, &past));
	/* A receiver that waits is handed the message. */
	pid_t c = fork();
	if (!c)
		_exit(take(q, 16) == 5 && !memcmp(got, "hello", 5) && got_prio == 9 ? 1 : 2);
	ms(20);
	T(put_message(q, "hello", 9));
	int st;
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
	/* A sender that waits is first, whatever its priority. */
	put_message(q, "first", 0);
	c = fork();
	if (!c)
		_exit(put_message(q, "second", 7) ? 3 : 4);
	ms(20);
	T(waitpid(c, NULL, WNOHANG));
	T(take(q, 16));
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
	T(take(q, 16));
	T(got_prio);
	/* Signals: a handler without SA_RESTART interrupts, one with it does not. */
	for (int restart = 0; restart < 2; restart++) {
		c = fork();
		if (!c) {
			struct sigaction sa = { .sa_handler = noted, .sa_flags = restart ? SA_RESTART : 0 };
			sigaction(SIGUSR1, &sa, NULL);
			long r = take(q, 16);
			_exit(r < 0 ? errno : 100 + r);
		}
		ms(30);
		kill(c, SIGUSR1);
		ms(20);
		put_message(q, "late", 0);
		waitpid(c, &st, 0);
		T(WEXITSTATUS(st));
		if (!restart)
			T(take(q, 16));
	}
	/* Who came first is served first; who is more urgent before. */
	int order[2];
	T(pipe(order));
	static const int nice_of[] = { 5, 5, 0, 5 };
	for (int i = 0; i < 4; i++) {
		if (!fork()) {
			setpriority(PRIO_PROCESS, 0, nice_of[i]);
			take(q, 16);
			char who = '0' + i;
			write(order[1], &who, 1);
			_exit(0);
		}
		ms(25);
	}
	char served[5] = { 0 };
	for (int i = 0; i < 4; i++) {
		put_message(q, "x", 0);
		read(order[0], served + i, 1);
	}
	S(served, 4);
	while (wait(NULL) > 0) {}
	/* Nonblocking is the descriptor's, not the queue's. */
	int n = sys_open("q", O_RDWR | O_NONBLOCK, 0, NULL);
	T(take(n, 16));
	t = in_ms(10);
	T(syscall(SYS_mq_timedreceive, n, got, 16, NULL, &t));
	T(syscall(SYS_mq_timedreceive, q, got, 16, NULL, &t));
	/* The end of a waiter leaves no trace. */
	put_message(q, "there", 0);
	c = fork();
	if (!c)
		_exit(put_message(q, "killed", 0));
	ms(20);
	kill(c, SIGKILL);
	waitpid(c, &st, 0);
	T(take(n, 16));
	T(take(n, 16));
}

static void polling(void)
{
	if (!own_space())
		return;
	int q = queue("q", O_RDWR | O_NONBLOCK, 2, 16);
	struct pollfd p = { q, POLLIN | POLLOUT | POLLPRI | POLLRDNORM | POLLWRNORM, 0 };
	for (int i = 0; i < 3; i++) {
		T(poll(&p, 1, 0));
		T(p.revents);
		put_message(q, "x", 0);
	}
	int e = epoll_create1(0);
	struct epoll_event ev = { EPOLLIN | EPOLLOUT, { 0 } };
	T(epoll_ctl(e, EPOLL_CTL_ADD, q, &ev));
	T(epoll_wait(e, &ev, 1, 0));
	T(ev.events);
	take(q, 16);
	T(epoll_wait(e, &ev, 1, 0));
	T(ev.events);
	take(q, 16);
	pid_t c = fork();
	if (!c) {
		struct pollfd p = { q, POLLIN, 0 };
		_exit(poll(&p, 1, 5000) == 1 ? p.revents : 99);
	}
	ms(20);
	put_message(q, "x", 0);
	int st;
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
	put_message(q, "x", 0);
	c = fork();
	if (!c) {
		struct pollfd p = { q, POLLOUT, 0 };
		_exit(poll(&p, 1, 5000) == 1 ? p.revents : 99);
	}
	ms(20);
	take(q, 16);
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
	/* An edge. */
	take(q, 16);
	ev.events = EPOLLIN | EPOLLET;
	epoll_ctl(e, EPOLL_CTL_MOD, q, &ev);
	T(epoll_wait(e, &ev, 1, 0));
	put_message(q, "x", 0);
	T(epoll_wait(e, &ev, 1, 100));
	T(epoll_wait(e, &ev, 1, 0));
	put_message(q, "x", 0);
	T(epoll_wait(e, &ev, 1, 100));
	fd_set r, w;
	FD_ZERO(&r);
	FD_ZERO(&w);
	FD_SET(q, &r);
	FD_SET(q, &w);
	struct timeval now = { 0, 0 };
	T(select(q + 1, &r, &w, NULL, &now));
	T(FD_ISSET(q, &r));
	T(FD_ISSET(q, &w));
}

static volatile sig_atomic_t signals, code, value, from_me, uid_ok;
static void told(int s, siginfo_t *i, void *u)
{
	signals++;
	code = i->si_code;
	value = i->si_value.sival_int;
	from_me = i->si_pid;
	uid_ok = i->si_uid == getuid();
}

static int notify(int q, int how, int signo, int v)
{
	struct sigevent e = { 0 };
	e.sigev_notify = how;
	e.sigev_signo = signo;
	e.sigev_value.sival_int = v;
	return syscall(SYS_mq_notify, q, &e);
}

/* What the queue's file says, with our number as ME. */
static void shown(const char *what, int q)
{
	char buf[200] = { 0 };
	long n = pread(q, buf, sizeof buf - 1, 0);
	char *pid = strstr(buf, "NOTIFY_PID:");
	if (pid && atoi(pid + 11) == getpid())
		strcpy(pid + 11, "ME\n");
	say(what, "%ld %.*s", n, (int)strcspn(buf, "\n"), buf);
}

static void notices(void)
{
	if (!own_space())
		return;
	struct sigaction sa = { .sa_sigaction = told, .sa_flags = SA_SIGINFO };
	sigaction(SIGUSR1, &sa, NULL);
	sigaction(SIGRTMIN, &sa, NULL);
	int q = queue("q", O_RDWR | O_NONBLOCK, 4, 16), q2 = sys_open("q", O_RDWR | O_NONBLOCK, 0, NULL);
	shown("nobody", q);
	T(notify(q, SIGEV_SIGNAL, SIGUSR1, 42));
	shown("asked", q);
	T(notify(q, SIGEV_SIGNAL, SIGUSR1, 43));
	T(notify(q2, SIGEV_NONE, 0, 0));
	T(put_message(q, "a", 0));
	T(signals);
	T(code);
	T(value);
	Y(from_me == getpid());
	T(uid_ok);
	shown("told", q);
	/* Once, and only when the queue was empty. */
	T(put_message(q, "b", 0));
	T(signals);
	T(notify(q, SIGEV_SIGNAL, SIGRTMIN, 44));
	T(put_message(q, "c", 0));
	T(signals);
	take(q, 16), take(q, 16), take(q, 16);
	T(put_message(q, "d", 0));
	T(signals);
	T(value);
	take(q, 16);
	/* Taken back. */
	T(notify(q, SIGEV_SIGNAL, SIGUSR1, 45));
	T(syscall(SYS_mq_notify, q, NULL));
	T(syscall(SYS_mq_notify, q, NULL));
	T(put_message(q, "e", 0));
	T(signals);
	take(q, 16);
	/* By a close of any descriptor. */
	T(notify(q, SIGEV_SIGNAL, SIGUSR1, 46));
	T(close(q2));
	shown("closed", q);
	T(notify(q, SIGEV_NONE, 0, 0));
	shown("none", q);
	/* Another process. */
	T(CHILD(_exit(notify(q, SIGEV_SIGNAL, SIGUSR1, 0) < 0 ? errno : 0)));
	T(CHILD(_exit(syscall(SYS_mq_notify, q, NULL) < 0 ? errno : 0)));
	shown("others", q);
	T(CHILD(close(q); _exit(0)));
	shown("others' close", q);
	T(CHILD(_exit(put_message(q, "f", 0) < 0 ? errno : 0)));
	shown("used up", q);
	take(q, 16);
	T(notify(q, SIGEV_SIGNAL, SIGUSR1, 47));
	signals = 0;
	pid_t c = fork();
	if (!c)
		_exit(put_message(q, "from a child", 0) ? 1 : 0);
	waitpid(c, NULL, 0);
	T(signals);
	Y(from_me == c);
	T(value);
	take(q, 16);
	/* Not where a receiver waits. */
	T(notify(q, SIGEV_SIGNAL, SIGUSR1, 48));
	signals = 0;
	c = fork();
	if (!c) {
		int b = sys_open("q", O_RDWR, 0, NULL);
		_exit(take(b, 16));
	}
	ms(30);
	T(put_message(q, "for the child", 0));
	int st;
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
	T(signals);
	shown("still asked", q);
	T(put_message(q, "g", 0));
	T(signals);
	take(q, 16);
	/* Arguments. */
	T(notify(q, 3, 0, 0));
	T(notify(q, SIGEV_THREAD_ID, SIGUSR1, 0));
	T(notify(q, SIGEV_SIGNAL, 65, 0));
	T(notify(q, SIGEV_SIGNAL, -1, 0));
	T(notify(-1, 99, 0, 0));
	T(syscall(SYS_mq_notify, q, (void *)8));
	T(notify(q, SIGEV_SIGNAL, 0, 0));
	shown("signal 0", q);
	T(put_message(q, "h", 0));
	shown("signal 0 sent", q);
	T(notify(q, SIGEV_SIGNAL, 64, 0));
	shown("signal 64", q);
	/* A process that ends asks for nothing. */
	syscall(SYS_mq_notify, q, NULL);
	T(CHILD(_exit(notify(q, SIGEV_SIGNAL, SIGUSR1, 0))));
	shown("asker ended", q);
	T(notify(q, SIGEV_NONE, 0, 0));
}

static void cookies(void)
{
	if (!own_space())
		return;
	int q = queue("q", O_RDWR | O_NONBLOCK, 4, 16);
	int nl = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE), un = socket(AF_UNIX, SOCK_STREAM, 0), p[2];
	pipe(p);
	char cookie[32] = "0123456789abcdef0123456789abcde";
	struct sigevent e = { 0 };
	e.sigev_notify = SIGEV_THREAD;
	e.sigev_value.sival_ptr = cookie;
	int fds[] = { -1, p[0], un, q };
	for (int i = 0; i < 4; i++) {
		e.sigev_signo = fds[i];
		T(syscall(SYS_mq_notify, q, &e));
	}
	e.sigev_signo = nl;
	T(syscall(SYS_mq_notify, -1, &e));
	e.sigev_value.sival_ptr = (void *)8;
	T(syscall(SYS_mq_notify, q, &e));
	e.sigev_value.sival_ptr = cookie;
	T(syscall(SYS_mq_notify, q, &e));
	shown("asked", q);
	T(syscall(SYS_mq_notify, q, &e));
	char in[64];
	T(recv(nl, in, sizeof in, MSG_DONTWAIT));
	put_message(q, "x", 0);
	struct pollfd r = { nl, POLLIN, 0 };
	T(poll(&r, 1, 1000));
	memset(in, 0, sizeof in);
	T(recv(nl, in, sizeof in, MSG_DONTWAIT));
	S(in, 32);
	T(recv(nl, in, sizeof in, MSG_DONTWAIT));
	take(q, 16);
	T(syscall(SYS_mq_notify, q, &e));
	T(syscall(SYS_mq_notify, q, NULL));
	T(recv(nl, in, sizeof in, MSG_DONTWAIT));
	T(in[31]);
	T(syscall(SYS_mq_notify, q, &e));
	close(dup(q));
	T(recv(nl, in, sizeof in, MSG_DONTWAIT));
	T(in[31]);
	/* The socket may be gone. */
	T(syscall(SYS_mq_notify, q, &e));
	close(nl);
	T(put_message(q, "y", 0));
	shown("after", q);
}

/* SIGEV_THREAD as the C library does it. */
static volatile int ran;
static void in_thread(union sigval v)
{
	__atomic_store_n(&ran, v.sival_int, __ATOMIC_SEQ_CST);
}

static void threads(void)
{
	if (!own_space())
		return;
	mqd_t q = mq_open("/q", O_CREAT | O_RDWR, 0600, NULL);
	struct sigevent e = { 0 };
	e.sigev_notify = SIGEV_THREAD;
	e.sigev_notify_function = in_thread;
	for (int i = 1; i <= 3; i++) {
		e.sigev_value.sival_int = i;
		T(mq_notify(q, &e));
		T(mq_send(q, "x", 1, 3));
		for (int k = 0; k < 200 && ran != i; k++)
			ms(10);
		T(ran);
		char buf[8192];
		unsigned prio;
		T(mq_receive(q, buf, sizeof buf, &prio));
		T(prio);
	}
	T(mq_notify(q, &e));
	T(mq_notify(q, NULL));
	T(mq_close(q));
	T(mq_unlink("/q"));
}

static void listing(const char *what, const char *dir)
{
	struct dirent **all;
	int n = scandir(dir, &all, NULL, alphasort);
	char line[400] = "";
	for (int i = 0; i < n; i++)
		sprintf(line + strlen(line), " %s/%d", all[i]->d_name, all[i]->d_type);
	say(what, "%d:%s", n, line);
}

static void files(void)
{
	if (!own_space() || unshare(CLONE_NEWNS))
		return;
	mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
	mkdir("m", 0755), mkdir("m2", 0755);
	T(mount("mqueue", "m", "mqueue", 0, "foo=1"));
	T(mount("mqueue", "m", "mqueue", 0, NULL));
	T(mount("whatever", "m2", "mqueue", MS_RDONLY, NULL));
	struct stat s, s2;
	T(stat("m", &s));
	T(s.st_mode == (S_IFDIR | 01777));
	T(s.st_size);
	T(s.st_nlink);
	T(s.st_uid);
	struct statfs f;
	T(statfs("m", &f));
	Y(f.f_type == 0x19800202);
	T(f.f_bsize);
	T(f.f_namelen);
	listing("empty", "m");
	int q = queue("b", O_RDWR | O_NONBLOCK, 4, 16);
	queue("a", O_RDWR, 4, 16);
	listing("two", "m");
	listing("two elsewhere", "m2");
	T(stat("m", &s));
	T(s.st_size);
	T(stat("m/b", &s));
	T(s.st_mode);
	T(s.st_size);
	T(s.st_nlink);
	T(s.st_blocks);
	T(fstat(q, &s2));
	Y(s.st_ino == s2.st_ino && s.st_dev == s2.st_dev);
	/* The text. */
	put_message(q, "12345", 0);
	put_message(q, "678", 9);
	char buf[200];
	int r = open("m/b", O_RDONLY);
	long n = read(r, buf, sizeof buf);
	T(n);
	S(buf, n);
	T(read(r, buf, sizeof buf));
	T(pread(r, buf, 5, 6));
	S(buf, 5);
	T(pread(r, buf, 5, 1000));
	/* Messages by a descriptor that open(2) gave, and the other way round. */
	int w = open("m/b", O_RDWR | O_NONBLOCK);
	T(take(w, 16));
	S(got, 3);
	T(put_message(w, "by open", 1));
	T(take(q, 16));
	S(got, 7);
	T(put_message(r, "x", 0));
	T(write(w, "x", 1));
	/* Making and removing files there. */
	int c = open("m/made", O_CREAT | O_EXCL | O_RDWR, 0640);
	T(c >= 0);
	struct mq_attr a;
	T(syscall(SYS_mq_getsetattr, c, NULL, &a));
	T(a.mq_maxmsg);
	T(a.mq_msgsize);
	T(stat("m/made", &s));
	T(s.st_mode);
	T(sys_open("made", O_RDWR, 0, NULL) >= 0);
	T(open("m2/ro", O_CREAT | O_RDWR, 0640));
	T(open("m2/made", O_RDWR));
	T(open("m2/made", O_RDONLY) >= 0);
	T(unlink("m2/made"));
	T(sys_open("although", O_CREAT | O_RDWR, 0600, NULL) >= 0);
	T(unlink("m/made"));
	T(sys_open("made", O_RDWR, 0, NULL));
	T(fstat(c, &s));
	T(s.st_nlink);
	T(sys_unlink("a"));
	T(access("m/a", F_OK));
	T(mkdir("m/d", 0755));
	T(symlink("x", "m/s"));
	T(link("m/b", "m/l"));
	T(rename("m/b", "m/c"));
	T(mknod("m/n", S_IFIFO | 0600, 0));
	T(mknod("m/r", S_IFREG | 0600, 0));
	T(truncate("m/b", 10));
	T(chmod("m/b", 0444));
	T(stat("m/b", &s));
	T(s.st_mode);
	T(s.st_size);
	T(open("m/b", O_RDONLY | O_TRUNC) >= 0);
	T(chown("m/b", 12, 34));
	T(stat("m/b", &s));
	T(s.st_uid * 100 + s.st_gid);
	/* Times: sending and receiving are changes. */
	struct timespec old[2] = { { 1000, 0 }, { 2000, 0 } };
	T(utimensat(AT_FDCWD, "m/b", old, 0));
	T(stat("m/b", &s));
	T(s.st_atime);
	T(s.st_mtime);
	put_message(q, "t", 0);
	T(stat("m/b", &s));
	Y(s.st_atime > 2000 && s.st_mtime > 2000);
	/* inotify. */
	int in = inotify_init1(IN_NONBLOCK);
	T(inotify_add_watch(in, "m", IN_ALL_EVENTS) > 0);
	queue("watched", O_RDWR, 1, 1);
	sys_unlink("watched");
	char ev[4096];
	n = read(in, ev, sizeof ev);
	char line[300] = "";
	for (char *e = ev; n > 0 && e < ev + n; e += sizeof(struct inotify_event) + ((struct inotify_event *)e)->len) {
		struct inotify_event *i = (void *)e;
		sprintf(line + strlen(line), " %x:%s", i->mask, i->len ? i->name : "");
	}
	say("inotify", "%s", line);
	/* /proc tells of it. */
	FILE *mounts = fopen("/proc/self/mounts", "r");
	char text[4096], cwd[200], want[300];
	getcwd(cwd, sizeof cwd);
	sprintf(want, "%s/m2 ", cwd);
	while (fgets(text, sizeof text, mounts)) {
		char *at = strstr(text, want);
		if (at)
			say("mounts", "%.*s %.*s", (int)strcspn(text, " "), text, (int)strcspn(at, "\n") - (int)strlen(want), at + strlen(want));
	}
	char fd[100];
	sprintf(fd, "/proc/self/fd/%d", q);
	n = readlink(fd, text, sizeof text);
	S(text, n);
	T(umount("m"));
	close_range(3, ~0U, 0);
	T(umount("m"));
	T(sys_open("b", O_RDONLY, 0, NULL) >= 0);
	T(umount("m2"));
	T(mount("mqueue", "m", "mqueue", 0, NULL));
	listing("again", "m");
}

/* One that counts for little. */
static int small(const char *name, int flags, int mode)
{
	struct mq_attr a = { .mq_maxmsg = 1, .mq_msgsize = 8 };
	return sys_open(name, flags, mode, &a);
}

static void permissions(void)
{
	if (!own_space() || unshare(CLONE_NEWNS))
		return;
	mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
	mkdir("m", 0755);
	T(mount("mqueue", "m", "mqueue", 0, NULL));
	umask(027);
	int q = small("masked", O_CREAT | O_RDWR, 0777);
	struct stat s;
	T(fstat(q, &s));
	T(s.st_mode & 07777);
	umask(0);
	q = small("odd", O_CREAT | O_RDWR, 07777);
	T(fstat(q, &s));
	T(s.st_mode & 07777);
	static const int modes[] = { 0, 04, 02, 06, 0600, 0666 };
	for (int i = 0; i < 6; i++) {
		char name[20];
		sprintf(name, "q%o", modes[i]);
		close(small(name, O_CREAT | O_RDWR, modes[i]));
		for (int how = 0; how < 3; how++)
			T(CHILD(drop_root(); _exit(sys_open(name, how, 0, NULL) < 0 ? errno : 0)));
	}
	/* A new queue's modes do not matter to its maker. */
	T(small("mine", O_CREAT | O_RDWR, 0) >= 0);
	T(CHILD(drop_root(); int f = small("theirs", O_CREAT | O_RDWR, 0); if (f < 0) _exit(errno);
		_exit(put_message(f, "x", 0) ? errno : 0)));
	T(CHILD(drop_root(); _exit(small("theirs", O_RDWR, 0) < 0 ? errno : 0)));
	T(CHILD(drop_root(); _exit(small("theirs", O_CREAT | O_RDWR, 0) < 0 ? errno : 0)));
	/* The directory is sticky. */
	T(CHILD(drop_root(); _exit(sys_unlink("q666") ? errno : 0)));
	T(CHILD(drop_root(); _exit(unlink("m/q666") ? errno : 0)));
	T(CHILD(drop_root(); _exit(sys_unlink("theirs") ? errno : 0)));
	T(CHILD(drop_root(); _exit(mq_unlink("/q666") ? errno : 0)));
	T(chmod("m", 0755));
	T(CHILD(drop_root(); _exit(small("new", O_CREAT | O_RDWR, 0600) < 0 ? errno : 0)));
	T(CHILD(drop_root(); _exit(small("q666", O_CREAT | O_RDWR, 0600) < 0 ? errno : 0)));
	T(chmod("m", 0666));
	T(CHILD(drop_root(); _exit(small("q666", O_RDWR, 0600) < 0 ? errno : 0)));
	T(chmod("m", 01777));
	/* An open descriptor keeps its rights. */
	T(CHILD(drop_root(); _exit(put_message(q, "x", 0) ? errno : 0)));
	close_range(3, ~0U, 0);
	T(mount(NULL, "m", NULL, MS_REMOUNT | MS_RDONLY, NULL));
	T(small("late", O_CREAT | O_RDWR, 0600));
	T(small("q666", O_RDWR, 0600));
	T(small("q666", O_RDONLY, 0600) >= 0);
	T(sys_unlink("q666"));
	T(mount(NULL, "m", NULL, MS_REMOUNT, NULL));
	T(sys_unlink("q666"));
}

static void limits(void)
{
	if (!own_space())
		return;
	struct rlimit r;
	drop_root();
	r = (struct rlimit){ 2000, 2000 };
	T(setrlimit(RLIMIT_MSGQUEUE, &r));
	/* 48 bytes for a message, 48 for a priority. */
	T(queue("a", O_RDWR, 10, 104) >= 0);
	T(queue("b", O_RDWR, 1, 1));
	T(sys_unlink("a"));
	/* It counts while it is open. */
	T(queue("b", O_RDWR, 10, 1));
	close_range(3, ~0U, 0);
	T(queue("b", O_RDWR, 10, 105));
	T(queue("b", O_RDWR, 10, 104) >= 0);
	T(sys_open("b", O_RDWR, 0, NULL) >= 0);
	T(sys_open("default", O_CREAT | O_RDWR, 0600, NULL));
	/* By user, in all processes. */
	T(CHILD(_exit(queue("c", O_RDWR, 1, 1) < 0 ? errno : 0)));
	T(CHILD(r = (struct rlimit){ 0, 0 }; setrlimit(RLIMIT_MSGQUEUE, &r); _exit(sys_open("b", O_RDWR, 0, NULL) < 0 ? errno : 0)));
	sys_unlink("b");
	close_range(3, ~0U, 0);
	T(CHILD(queue("d", O_RDWR, 5, 100); _exit(0)));
	/* It outlives its maker. */
	T(queue("e", O_RDWR, 10, 104));
	T(queue("e", O_RDWR, 10, 6) >= 0);
	T(sys_unlink("d"));
	T(queue("f", O_RDWR, 5, 100) >= 0);
}

static void number(const char *name, const char *new)
{
	char path[100], buf[40] = "", what[100];
	sprintf(path, "/proc/sys/fs/mqueue/%s", name);
	int fd = open(path, O_RDONLY);
	long n = read(fd, buf, sizeof buf - 1);
	close(fd);
	buf[strcspn(buf, "\n")] = 0;
	int r = new ? write_text(path, new) : 0, e = errno;
	sprintf(what, "%s %s", name, new ? new : "");
	say(what, "was %s, %s", buf, r ? strerrorname_np(e) : "ok");
}

static void settings(void)
{
	static const char *const all[] = { "msg_default", "msg_max", "msgsize_default", "msgsize_max", "queues_max" };
	if (!own_space())
		return;
	listing("files", "/proc/sys/fs/mqueue");
	for (int i = 0; i < 5; i++)
		number(all[i], NULL);
	struct stat s;
	T(stat("/proc/sys/fs/mqueue/msg_max", &s));
	T(s.st_mode);
	T(s.st_uid);
	number("msg_max", "0");
	number("msg_max", "65537");
	number("msg_max", "-1");
	number("msg_max", "x");
	number("msg_max", "20");
	number("msgsize_max", "127");
	number("msgsize_max", "16777217");
	number("msgsize_max", "128");
	number("msg_default", "30");
	number("msgsize_default", "200");
	number("queues_max", "-5");
	number("queues_max", "2");
	for (int i = 0; i < 5; i++)
		number(all[i], NULL);
	/* Others' are as they were. */
	T(CHILD(unshare(CLONE_NEWIPC); number("msg_max", NULL)));
	T(CHILD(drop_root(); _exit(write_text("/proc/sys/fs/mqueue/msg_max", "30") ? errno : 0)));
	drop_root();
	struct mq_attr a;
	int q = sys_open("default", O_CREAT | O_RDWR, 0600, NULL);
	T(syscall(SYS_mq_getsetattr, q, NULL, &a));
	T(a.mq_maxmsg);
	T(a.mq_msgsize);
	T(queue("q", O_RDWR, 20, 128) >= 0);
	T(queue("q3", O_RDWR, 1, 1));
	T(queue("q3", O_RDWR, 0, 0));
	T(sys_unlink("q"));
	T(queue("q3", O_RDWR, 21, 1));
	T(queue("q3", O_RDWR, 1, 1));
	close_range(3, ~0U, 0);
	T(queue("q3", O_RDWR, 21, 1));
	T(queue("q3", O_RDWR, 1, 129));
	T(queue("q3", O_RDWR, 1, 128) >= 0);
}

static void namespaces(void)
{
	if (!own_space() || unshare(CLONE_NEWNS))
		return;
	mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
	mkdir("m", 0755), mkdir("m2", 0755);
	int q = queue("outer", O_RDWR | O_NONBLOCK, 4, 16);
	mount("mqueue", "m", "mqueue", 0, NULL);
	pid_t c = fork();
	if (!c) {
		T(unshare(CLONE_NEWIPC));
		T(sys_open("outer", O_RDWR, 0, NULL));
		T(queue("inner", O_RDWR, 1, 1) >= 0);
		listing("m", "m");
		T(mount("mqueue", "m2", "mqueue", 0, NULL));
		listing("m2", "m2");
		/* An open queue works from anywhere. */
		T(put_message(q, "across", 1));
		T(open("m/by name", O_CREAT | O_RDWR, 0600));
		_exit(0);
	}
	waitpid(c, NULL, 0);
	T(take(q, 16));
	listing("m", "m");
	listing("m2", "m2");
	/* The other namespace has ended: its files stay, and no new ones come. */
	T(open("m2/inner", O_RDWR) >= 0);
	T(open("m2/another", O_CREAT | O_RDWR, 0600));
	T(unlink("m2/inner"));
	/* A user namespace's own. */
	T(CHILD(if (unshare(CLONE_NEWUSER | CLONE_NEWIPC)) _exit(errno);
		struct stat s; mkdir("m3", 0755);
		_exit(queue("u", O_RDWR, 1, 1) < 0 ? errno : 0)));
	T(CHILD(if (unshare(CLONE_NEWUSER | CLONE_NEWNS)) _exit(200); _exit(mount("mqueue", "m", "mqueue", 0, NULL) ? errno : 0)));
	T(CHILD(if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC)) _exit(200); _exit(mount("mqueue", "m", "mqueue", 0, NULL) ? errno : 0)));
}

static void programs(void)
{
	if (!own_space())
		return;
	/* Descriptors close at execve(2), with what was asked. */
	int q = queue("q", O_RDWR | O_NONBLOCK, 4, 16);
	pid_t c = fork();
	if (!c) {
		signal(SIGUSR1, SIG_DFL);
		notify(q, SIGEV_SIGNAL, SIGUSR1, 0);
		execl("/bin/sleep", "sleep", "0.3", NULL);
		_exit(9);
	}
	ms(100);
	shown("after exec", q);
	put_message(q, "x", 0);
	int st;
	waitpid(c, &st, 0);
	T(st);
	take(q, 16);
	/* Kept open, it is asked still; but another program is told nothing. */
	c = fork();
	if (!c) {
		fcntl(q, F_SETFD, 0);
		notify(q, SIGEV_SIGNAL, SIGUSR1, 0);
		execl("/bin/sleep", "sleep", "0.3", NULL);
		_exit(9);
	}
	ms(100);
	T(notify(q, SIGEV_NONE, 0, 0));
	put_message(q, "x", 0);
	waitpid(c, &st, 0);
	T(st);
	shown("after", q);
}

static const struct check all[] = {
	CHECK(names), CHECK(opening), CHECK(attributes), CHECK(transfer), CHECK(waiting), CHECK(polling),
	CHECK(notices), CHECK(cookies), CHECK(threads), CHECK(files), CHECK(permissions), CHECK(limits),
	CHECK(settings), CHECK(namespaces), CHECK(programs),
};
MAIN(all)
