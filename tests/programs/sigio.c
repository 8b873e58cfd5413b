/* Signals of files that became ready: O_ASYNC, F_SETOWN, F_SETSIG, FIOASYNC. */
#define AREA "sigio"
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pty.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/timerfd.h>

static volatile int hits, hit_sig, hit_code, hit_fd, hit_in;
static volatile long hit_band;

static void on(int s, siginfo_t *i, void *c)
{
	(void)c;
	hit_sig = s;
	hit_code = i->si_code;
	hit_fd = i->si_fd;
	hit_band = i->si_band;
	hit_in = gettid();
	/* Last: another thread waits for it. */
	hits++;
}
static void handle(int sig)
{
	struct sigaction a = { .sa_sigaction = on, .sa_flags = SA_SIGINFO | SA_RESTART };
	sigaction(sig, &a, NULL);
}
/* What came since, and of which descriptor. */
static void came(const char *when, int fd)
{
	say(when, "%d times, signal %d, code %d, band %#lx, %s", hits, hit_sig, hit_code, hit_band,
	    hit_fd == fd ? "its descriptor" : "another descriptor");
	hits = hit_sig = hit_code = hit_fd = 0;
	hit_band = 0;
}
/* The same, of what takes a while. */
static void comes(const char *when, int fd)
{
	for (int i = 0; i < 200 && !hits; i++)
		ms(5);
	ms(10);
	came(when, fd);
}
static int arm(int fd, int sig)
{
	handle(sig ? sig : SIGIO);
	return fcntl(fd, F_SETOWN, getpid()) | fcntl(fd, F_SETSIG, sig) |
	       fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC);
}

static void owner(void)
{
	int p[2];
	struct f_owner_ex o = { 77, 77 };
	T(pipe(p));
	T(fcntl(p[0], F_GETOWN));
	T(fcntl(p[0], F_GETOWN_EX, &o));
	T(o.type);
	T(o.pid);
	T(fcntl(p[0], F_SETOWN, getpid()));
	Y(fcntl(p[0], F_GETOWN) == getpid());
	T(fcntl(p[0], F_GETOWN_EX, &o));
	T(o.type);
	Y(o.pid == getpid());
	T(fcntl(p[0], F_SETOWN, 0));
	T(fcntl(p[0], F_GETOWN));
	T(fcntl(p[0], F_GETOWN_EX, &o));
	T(o.type);
	T(o.pid);
	T(fcntl(p[0], F_SETOWN, 4000000));
	T(fcntl(p[0], F_SETOWN, -4000000));
	T(fcntl(p[0], F_SETOWN, INT_MIN));
	setpgid(0, 0);
	T(fcntl(p[0], F_SETOWN, -getpid()));
	T(fcntl(p[0], F_GETOWN_EX, &o));
	T(o.type);
	Y(o.pid == getpid());
	o = (struct f_owner_ex){ F_OWNER_TID, gettid() };
	T(fcntl(p[0], F_SETOWN_EX, &o));
	o = (struct f_owner_ex){ 77, 77 };
	T(fcntl(p[0], F_GETOWN_EX, &o));
	T(o.type);
	Y(o.pid == gettid());
	Y(fcntl(p[0], F_GETOWN) == gettid());
	o = (struct f_owner_ex){ F_OWNER_PGRP, 0 };
	T(fcntl(p[0], F_SETOWN_EX, &o));
	T(fcntl(p[0], F_GETOWN_EX, &o));
	T(o.type);
	T(o.pid);
	o = (struct f_owner_ex){ 3, getpid() };
	T(fcntl(p[0], F_SETOWN_EX, &o));
	o = (struct f_owner_ex){ F_OWNER_PID, -1 };
	T(fcntl(p[0], F_SETOWN_EX, &o));
	o = (struct f_owner_ex){ F_OWNER_PID, 4000000 };
	T(fcntl(p[0], F_SETOWN_EX, &o));
	T(fcntl(p[0], F_SETOWN_EX, NULL));
	/* One that has ended, waited for or not. */
	pid_t c = fork();
	if (c == 0)
		_exit(0);
	siginfo_t si;
	waitid(P_PID, c, &si, WEXITED | WNOWAIT);
	T(fcntl(p[0], F_SETOWN, c));
	Y(fcntl(p[0], F_GETOWN) == c);
	waitpid(c, NULL, 0);
	T(fcntl(p[0], F_GETOWN));
	T(fcntl(p[0], F_GETSIG));
	T(fcntl(p[0], F_SETSIG, 65));
	T(fcntl(p[0], F_SETSIG, -1));
	T(fcntl(p[0], F_SETSIG, 64));
	T(fcntl(p[0], F_GETSIG));
	/* Of the open file, not of the descriptor. */
	int d = dup(p[0]);
	T(fcntl(d, F_GETSIG));
	T(fcntl(p[1], F_GETSIG));
}

static void pipes(void)
{
	int p[2];
	char b[8192];
	T(pipe2(p, O_NONBLOCK));
	T(arm(p[0], 0));
	T(fcntl(p[0], F_GETFL));
	write(p[1], "a", 1);
	came("written", 0);
	write(p[1], "a", 1);
	came("again", 0);
	T(fcntl(p[0], F_SETSIG, SIGUSR1));
	handle(SIGUSR1);
	write(p[1], "a", 1);
	came("with another signal", p[0]);
	/* Its codes mean something else. */
	handle(SIGCHLD);
	T(fcntl(p[0], F_SETSIG, SIGCHLD));
	write(p[1], "a", 1);
	came("SIGCHLD", p[0]);
	T(fcntl(p[0], F_SETSIG, SIGIO));
	write(p[1], "a", 1);
	came("SIGIO said", p[0]);
	T(fcntl(p[0], F_SETOWN, 0));
	write(p[1], "a", 1);
	came("without an owner", 0);
	T(fcntl(p[0], F_SETOWN, getpid()));
	T(fcntl(p[0], F_SETFL, O_NONBLOCK));
	write(p[1], "a", 1);
	came("off", 0);
	T(fcntl(p[0], F_SETFL, O_NONBLOCK | O_ASYNC));
	close(p[1]);
	came("closed", p[0]);
	close(p[0]);
	/* The writer hears of room, and of the reader's end. */
	T(pipe2(p, O_NONBLOCK));
	signal(SIGPIPE, SIG_IGN);
	while (write(p[1], b, sizeof b) > 0) {}
	T(arm(p[1], SIGUSR2));
	while (read(p[0], b, sizeof b) > 0) {}
	Y(hits > 0);
	hits = 1;
	came("read", p[1]);
	close(p[0]);
	came("no reader", p[1]);
	close(p[1]);
	/* The descriptor at the time is told, even when it is closed. */
	T(pipe2(p, O_NONBLOCK));
	T(arm(p[0], SIGUSR1));
	int d = dup(p[0]), old = p[0];
	close(p[0]);
	write(p[1], "a", 1);
	came("closed, but for a copy", old);
	close(d);
	write(p[1], "a", 1);
	came("gone", old);
}

static void fioasync(void)
{
	int p[2], on = 1, off = 0, file = open("f", O_CREAT | O_RDWR, 0600);
	int e = eventfd(0, 0), t = timerfd_create(CLOCK_MONOTONIC, 0);
	T(pipe(p));
	T(ioctl(p[0], FIOASYNC, &on));
	T(fcntl(p[0], F_GETFL) & O_ASYNC);
	T(ioctl(p[0], FIOASYNC, &on));
	handle(SIGIO);
	fcntl(p[0], F_SETOWN, getpid());
	write(p[1], "a", 1);
	came("on", 0);
	T(ioctl(p[0], FIOASYNC, &off));
	T(fcntl(p[0], F_GETFL) & O_ASYNC);
	write(p[1], "a", 1);
	came("off", 0);
	T(ioctl(p[0], FIOASYNC, NULL));
	T(ioctl(file, FIOASYNC, &on));
	T(ioctl(file, FIOASYNC, &off));
	T(ioctl(e, FIOASYNC, &on));
	T(ioctl(t, FIOASYNC, &on));
	/* As a flag it is kept everywhere. */
	T(fcntl(file, F_SETFL, O_ASYNC));
	T(fcntl(file, F_GETFL) & O_ASYNC);
	T(ioctl(file, FIOASYNC, &on));
	T(ioctl(file, FIOASYNC, &off));
	T(fcntl(e, F_SETFL, O_ASYNC));
	fcntl(e, F_SETOWN, getpid());
	write(e, "12345678", 8);
	came("eventfd", 0);
	file = open("f", O_RDWR | O_ASYNC);
	T(fcntl(file, F_GETFL) & O_ASYNC);
	mkfifo("q", 0600);
	int q = open("q", O_RDWR | O_ASYNC | O_NONBLOCK);
	T(fcntl(q, F_GETFL) & O_ASYNC);
	fcntl(q, F_SETOWN, getpid());
	write(q, "a", 1);
	came("set by open: without effect", 0);
}

static void fifo(void)
{
	mkfifo("q", 0600);
	int q = open("q", O_RDWR | O_NONBLOCK);
	T(arm(q, SIGUSR1));
	write(q, "a", 1);
	came("both ends", q);
	int r = open("q", O_RDONLY | O_NONBLOCK);
	T(arm(r, SIGUSR2));
	write(q, "a", 1);
	Y(hits == 2);
	came("two listen", hit_fd);
}

static void unix_sockets(void)
{
	int s[2];
	T(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s));
	T(arm(s[0], SIGUSR1));
	write(s[1], "a", 1);
	came("stream", s[0]);
	shutdown(s[1], SHUT_WR);
	came("shut down", s[0]);
	close(s[1]);
	came("closed", s[0]);
	close(s[0]);
	T(socketpair(AF_UNIX, SOCK_DGRAM, 0, s));
	T(arm(s[0], SIGUSR1));
	write(s[1], "a", 1);
	came("datagram", s[0]);
	write(s[1], "a", 1);
	came("another", s[0]);
	close(s[1]);
	close(s[0]);
	struct sockaddr_un a = { AF_UNIX, "s" };
	int l = socket(AF_UNIX, SOCK_STREAM, 0), c = socket(AF_UNIX, SOCK_STREAM, 0);
	bind(l, (void *)&a, sizeof a);
	listen(l, 5);
	T(arm(l, SIGUSR1));
	T(connect(c, (void *)&a, sizeof a));
	came("a connection", l);
	/* An accepted one has no owner yet. */
	int n = accept(l, NULL, NULL);
	T(fcntl(n, F_GETFL) & O_ASYNC);
	T(fcntl(n, F_GETOWN));
	write(c, "a", 1);
	came("to an accepted one", n);
}

static void inet(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0), pid = getpid();
	bind(l, (void *)&a, sizeof a);
	listen(l, 5);
	getsockname(l, (void *)&a, &len);
	T(ioctl(l, SIOCSPGRP, &pid));
	pid = 0;
	T(ioctl(l, SIOCGPGRP, &pid));
	Y(pid == getpid());
	T(arm(l, SIGUSR1));
	T(connect(c, (void *)&a, sizeof a));
	comes("a connection", l);
	int n = accept(l, NULL, NULL);
	T(arm(n, SIGUSR1));
	write(c, "a", 1);
	comes("data", n);
	shutdown(c, SHUT_WR);
	comes("the end of data", n);
	close(c);
	close(n);
	int u = socket(AF_INET, SOCK_DGRAM, 0), v = socket(AF_INET, SOCK_DGRAM, 0);
	a.sin_port = 0;
	bind(u, (void *)&a, sizeof a);
	getsockname(u, (void *)&a, &len);
	T(arm(u, SIGUSR2));
	T(sendto(v, "a", 1, 0, (void *)&a, len));
	comes("udp", u);
}

static void terminal(void)
{
	int m, s;
	struct f_owner_ex o;
	T(openpty(&m, &s, NULL, NULL, NULL));
	/* Without an owner its reader becomes it. */
	handle(SIGIO);
	T(fcntl(s, F_SETFL, O_ASYNC | O_RDWR));
	T(fcntl(s, F_GETOWN_EX, &o));
	T(o.type);
	Y(o.pid == getpid());
	write(m, "abc", 3);
	comes("not a line yet", 0);
	write(m, "\n", 1);
	comes("a line", 0);
	T(fcntl(m, F_SETSIG, SIGUSR1));
	handle(SIGUSR1);
	T(fcntl(m, F_SETFL, O_ASYNC | O_RDWR));
	write(s, "x", 1);
	hits = hits > 0;
	comes("output", m);
}

static void watches(void)
{
	int i = inotify_init1(IN_NONBLOCK);
	T(inotify_add_watch(i, ".", IN_CREATE));
	T(arm(i, SIGUSR1));
	close(open("new", O_CREAT | O_RDWR, 0600));
	came("inotify", i);
}

static volatile int tid, go;
static void *sleeps(void *p)
{
	tid = gettid();
	while (!go)
		ms(5);
	return p;
}

static void threads(void)
{
	int p[2];
	pthread_t t;
	T(pipe2(p, O_NONBLOCK));
	pthread_create(&t, NULL, sleeps, NULL);
	while (!tid)
		ms(1);
	T(arm(p[0], SIGUSR1));
	struct f_owner_ex o = { F_OWNER_TID, tid };
	T(fcntl(p[0], F_SETOWN_EX, &o));
	write(p[1], "a", 1);
	for (int i = 0; i < 200 && !hits; i++)
		ms(5);
	Y(hit_in == tid);
	came("to a thread", p[0]);
	/* As a process's number, another thread's names nobody. */
	T(fcntl(p[0], F_SETOWN, tid));
	T(fcntl(p[0], F_GETOWN));
	write(p[1], "a", 1);
	came("to nobody", 0);
	go = 1;
	pthread_join(t, NULL);
	ms(50);
	T(fcntl(p[0], F_SETOWN_EX, &o));
}

/* A blocked write tells the reader before it sleeps. */
static void asleep(void)
{
	int p[2];
	T(pipe(p));
	T(arm(p[0], SIGUSR1));
	pid_t me = getpid(), c = fork();
	if (c == 0) {
		char b[1 << 17] = { 0 };
		write(p[1], b, sizeof b);
		_exit(0);
	}
	(void)me;
	for (int i = 0; i < 200 && !hits; i++)
		ms(5);
	Y(hits > 0);
	hits = 1;
	came("its first part", p[0]);
	char b[4096];
	long n = 0;
	while (n < 1 << 17)
		n += read(p[0], b, sizeof b);
	T(waitpid(c, NULL, 0) == c);
}

static void groups(void)
{
	int p[2], ready[2];
	T(pipe(p));
	T(pipe(ready));
	handle(SIGUSR1);
	pid_t c[2];
	for (int i = 0; i < 2; i++) {
		c[i] = fork();
		if (c[i] == 0) {
			setpgid(0, i ? c[0] : 0);
			write(ready[1], "r", 1);
			for (int n = 0; n < 400 && !hits; n++)
				ms(5);
			_exit(hits * 10 + (hit_fd == p[0]));
		}
		setpgid(c[i], c[0]);
	}
	char b[2];
	read(ready[0], b, 1), read(ready[0], b, 1);
	T(fcntl(p[0], F_SETOWN, -c[0]));
	T(fcntl(p[0], F_SETSIG, SIGUSR1));
	T(fcntl(p[0], F_SETFL, O_ASYNC));
	write(p[1], "a", 1);
	for (int i = 0; i < 2; i++) {
		int st;
		waitpid(c[i], &st, 0);
		T(WEXITSTATUS(st));
	}
	came("not to others", 0);
}

/* By the right of who made it the owner (sigio_perm). */
static void rights(void)
{
	int p[2];
	if (getuid()) {
		say("rights", "not as root");
		return;
	}
	T(pipe(p));
	T(arm(p[0], SIGUSR1));
	T(CHILD(
		if (setresuid(1234, 1234, 1234)) _exit(9);
		_exit(fcntl(p[0], F_SETOWN, getppid()) ? 1 : 0);
	));
	Y(fcntl(p[0], F_GETOWN) == getpid());
	write(p[1], "a", 1);
	came("made by one without the right", 0);
	T(fcntl(p[0], F_SETOWN, getpid()));
	T(CHILD(
		if (setresuid(1234, 1234, 1234)) _exit(9);
		write(p[1], "a", 1);
	));
	ms(20);
	came("whoever writes", p[0]);
}

/* Signals without handlers do what they do, and a full queue falls back. */
static void actions(void)
{
	int p[2];
	T(pipe2(p, O_NONBLOCK));
	T(CHILD(
		fcntl(p[0], F_SETOWN, getpid());
		fcntl(p[0], F_SETFL, O_ASYNC | O_NONBLOCK);
		write(p[1], "a", 1);
	));
	T(CHILD(
		fcntl(p[0], F_SETFL, O_NONBLOCK);
		fcntl(p[0], F_SETOWN, getpid());
		fcntl(p[0], F_SETSIG, SIGKILL);
		fcntl(p[0], F_SETFL, O_ASYNC | O_NONBLOCK);
		write(p[1], "a", 1);
	));
	fcntl(p[0], F_SETFL, O_NONBLOCK);
	handle(SIGIO);
	T(arm(p[0], SIGRTMIN + 3));
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 3);
	sigprocmask(SIG_BLOCK, &set, NULL);
	for (int i = 0; i < 3; i++)
		write(p[1], "a", 1);
	came("blocked", 0);
	siginfo_t si;
	struct timespec none = { 0, 0 };
	for (int i = 0; i < 4; i++) {
		int s = sigtimedwait(&set, &si, &none);
		say("waits", "%s", s == SIGRTMIN + 3 ? "one" : "none");
		if (s > 0) {
			T(si.si_code);
			Y(si.si_fd == p[0]);
			T(si.si_band);
		}
	}
	struct rlimit l = { 0, 0 };
	setrlimit(RLIMIT_SIGPENDING, &l);
	write(p[1], "a", 1);
	came("a full queue", 0);
}

static const struct check all[] = {
	CHECK(owner), CHECK(pipes), CHECK(fioasync), CHECK(fifo), CHECK(unix_sockets), CHECK(inet), CHECK(terminal),
	CHECK(watches), CHECK(threads), CHECK(asleep), CHECK(groups), CHECK(rights), CHECK(actions),
};
MAIN(all)
