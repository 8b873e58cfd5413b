/* eventfd, epoll, poll, select, signalfd, inotify. */
#define AREA "events"
#include "check.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <sys/signalfd.h>

static void eventfds(void)
{
	uint64_t v;
	int e = eventfd(3, EFD_NONBLOCK);
	T(read(e, &v, 8));
	T(v);
	T(read(e, &v, 8));
	v = 5;
	T(write(e, &v, 8));
	T(write(e, &v, 8));
	T(read(e, &v, 7));
	T(write(e, &v, 7));
	T(read(e, &v, 8));
	T(v);
	v = -1;
	T(write(e, &v, 8));
	v = -2;
	T(write(e, &v, 8));
	v = 1;
	T(write(e, &v, 8));
	struct pollfd p = { e, POLLIN | POLLOUT };
	T(poll(&p, 1, 0));
	T(p.revents);
	T(read(e, &v, 8));
	poll(&p, 1, 0);
	T(p.revents);
	int s = eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK | EFD_CLOEXEC);
	T(read(s, &v, 8));
	T(v);
	T(read(s, &v, 8));
	T(read(s, &v, 8));
	T(fcntl(s, F_GETFD));
	T(eventfd(0, 0x1000));
	T(lseek(e, 0, SEEK_SET));
	T(pread(e, &v, 8, 0));
	int b = eventfd(0, 0);
	pid_t c = fork();
	if (!c) {
		ms(20);
		v = 9;
		write(b, &v, 8);
		_exit(0);
	}
	T(read(b, &v, 8));
	T(v);
	waitpid(c, NULL, 0);
}

static void polling(void)
{
	int p[2];
	pipe(p);
	struct pollfd f[4] = { { p[0], POLLIN }, { p[1], POLLOUT }, { -1, POLLIN, 7 }, { 99, POLLIN } };
	T(poll(f, 4, 0));
	T(f[0].revents);
	T(f[1].revents);
	T(f[2].revents);
	T(f[3].revents);
	T(poll(f, 1, 0));
	long long s = now_ms();
	T(poll(f, 1, 30));
	Y(now_ms() - s >= 30);
	T(poll(NULL, 0, 10));
	T(poll((void *)8, 1, 0));
	T(poll(f, 1 << 30, 0));
	write(p[1], "x", 1);
	f[0].events = 0;
	T(poll(f, 1, 0));
	f[0].events = POLLIN | POLLRDNORM | POLLPRI;
	T(poll(f, 1, -1));
	T(f[0].revents);
	int file = open("f", O_CREAT | O_RDWR, 0644);
	f[0].fd = file, f[0].events = POLLIN | POLLOUT;
	T(poll(f, 1, 0));
	T(f[0].revents);
	pid_t c = fork();
	if (!c) {
		ms(20);
		write(p[1], "x", 1);
		_exit(0);
	}
	char b;
	read(p[0], &b, 1);
	f[0].fd = p[0], f[0].events = POLLIN;
	T(poll(f, 1, 5000));
	waitpid(c, NULL, 0);
	struct timespec t = { 0, 1000000 }, bad = { 0, 1000000000 };
	read(p[0], &b, 1);
	T(ppoll(f, 1, &t, NULL));
	T(ppoll(f, 1, &bad, NULL));
	T(syscall(SYS_ppoll, f, 1, &t, f, 3));
	t.tv_sec = 5;
	write(p[1], "x", 1);
	T(syscall(SYS_ppoll, f, 1, &t, NULL, 8));
	Y(t.tv_sec == 4 || t.tv_sec == 5);
}

static volatile int got;
static void on(int s)
{
	got = s;
}

static void masks_while_waiting(void)
{
	sigset_t block, none;
	struct timespec t = { 5, 0 };
	struct sigaction a = { .sa_handler = on };
	sigaction(SIGUSR1, &a, NULL);
	sigemptyset(&none);
	sigemptyset(&block);
	sigaddset(&block, SIGUSR1);
	sigprocmask(SIG_BLOCK, &block, NULL);
	raise(SIGUSR1);
	T(got);
	T(ppoll(NULL, 0, &t, &none));
	T(got);
	got = 0;
	raise(SIGUSR1);
	T(pselect(0, NULL, NULL, NULL, &t, &none));
	T(got);
	got = 0;
	raise(SIGUSR1);
	int e = epoll_create1(0);
	struct epoll_event ev;
	T(epoll_pwait(e, &ev, 1, 5000, &none));
	T(got);
	got = 0;
	raise(SIGUSR1);
	/* What is ready wins, and the signal stays pending. */
	int p[2];
	pipe(p);
	write(p[1], "x", 1);
	struct pollfd f = { p[0], POLLIN };
	T(ppoll(&f, 1, &t, &none));
	T(got);
	sigset_t pend;
	sigpending(&pend);
	T(sigismember(&pend, SIGUSR1));
	sigprocmask(SIG_SETMASK, NULL, &pend);
	T(sigismember(&pend, SIGUSR1));
}

static void selecting(void)
{
	int p[2];
	fd_set r, w, x;
	struct timeval t = { 0, 0 };
	pipe(p);
	FD_ZERO(&r); FD_ZERO(&w); FD_ZERO(&x);
	FD_SET(p[0], &r), FD_SET(p[1], &w), FD_SET(p[0], &x);
	T(select(p[1] + 1, &r, &w, &x, &t));
	T(FD_ISSET(p[0], &r));
	T(FD_ISSET(p[1], &w));
	T(FD_ISSET(p[0], &x));
	write(p[1], "x", 1);
	FD_SET(p[0], &r);
	T(select(p[1] + 1, &r, &w, NULL, NULL));
	FD_SET(p[0], &r);
	T(select(p[0], &r, NULL, NULL, &t));
	T(select(-1, NULL, NULL, NULL, &t));
	FD_ZERO(&r); FD_SET(50, &r);
	T(select(60, &r, NULL, NULL, &t));
	T(select(20, &r, NULL, NULL, &t));
	T(select(1, (void *)8, NULL, NULL, &t));
	t.tv_sec = -1;
	T(select(0, NULL, NULL, NULL, &t));
	t.tv_sec = 0, t.tv_usec = 20000;
	long long s = now_ms();
	T(select(0, NULL, NULL, NULL, &t));
	Y(now_ms() - s >= 20);
	T(t.tv_usec);
	/* A hang-up does not end a wait for writing. */
	close(p[0]);
	int q[2];
	pipe(q);
	close(q[1]);
	FD_ZERO(&x); FD_SET(q[0], &x);
	t.tv_usec = 10000;
	T(select(q[0] + 1, NULL, NULL, &x, &t));
	FD_ZERO(&r); FD_SET(q[0], &r);
	T(select(q[0] + 1, &r, NULL, NULL, &t));
	FD_ZERO(&w); FD_SET(p[1], &w);
	FD_ZERO(&r); FD_SET(p[1], &r);
	T(select(p[1] + 1, &r, &w, NULL, &t));
}

static struct epoll_event event(int events, int data)
{
	struct epoll_event e = { .events = events, .data.u32 = data };
	return e;
}

static int control(int ep, int op, int fd, int events, int data)
{
	struct epoll_event e = event(events, data);
	return epoll_ctl(ep, op, fd, &e);
}

/* The first event: data * 100000 + events; 0 if none. */
static long next(int ep, int timeout)
{
	struct epoll_event e;
	int n = epoll_wait(ep, &e, 1, timeout);
	return n == 1 ? e.data.u32 * 100000L + e.events : n;
}

static void epolls(void)
{
	int ep = epoll_create1(EPOLL_CLOEXEC), p[2], f = open("f", O_CREAT | O_RDWR, 0644);
	struct epoll_event e[4];
	char b;
	pipe(p);
	T(fcntl(ep, F_GETFD));
	T(epoll_create(0));
	T(epoll_create1(0x100));
	T(control(ep, EPOLL_CTL_ADD, p[0], EPOLLIN, 1));
	T(control(ep, EPOLL_CTL_ADD, p[0], EPOLLIN, 1));
	T(control(ep, EPOLL_CTL_ADD, 99, EPOLLIN, 1));
	T(control(ep, EPOLL_CTL_ADD, f, EPOLLIN, 1));
	T(control(ep, EPOLL_CTL_ADD, ep, EPOLLIN, 1));
	T(control(ep, EPOLL_CTL_MOD, p[1], EPOLLIN, 1));
	T(control(ep, EPOLL_CTL_DEL, p[1], EPOLLIN, 1));
	T(control(ep, 9, p[0], EPOLLIN, 1));
	T(control(f, EPOLL_CTL_ADD, p[0], EPOLLIN, 1));
	T(epoll_ctl(ep, EPOLL_CTL_ADD, p[1], NULL));
	T(epoll_ctl(ep, EPOLL_CTL_MOD, p[0], (void *)8));
	T(next(ep, 0));
	write(p[1], "ab", 2);
	T(next(ep, -1));
	T(next(ep, 0));
	T(control(ep, EPOLL_CTL_MOD, p[0], EPOLLIN | EPOLLET, 2));
	T(next(ep, 0));
	T(next(ep, 0));
	write(p[1], "c", 1);
	T(next(ep, 0));
	read(p[0], &b, 1);
	T(next(ep, 0));
	T(control(ep, EPOLL_CTL_MOD, p[0], EPOLLIN | EPOLLONESHOT, 3));
	T(next(ep, 0));
	T(next(ep, 0));
	write(p[1], "d", 1);
	T(next(ep, 0));
	T(control(ep, EPOLL_CTL_MOD, p[0], EPOLLIN | EPOLLONESHOT, 3));
	T(next(ep, 0));
	T(control(ep, EPOLL_CTL_ADD, p[1], EPOLLOUT, 4));
	T(control(ep, EPOLL_CTL_MOD, p[0], EPOLLIN, 3));
	T(epoll_wait(ep, e, 4, 0));
	T(epoll_wait(ep, e, 0, 0));
	T(epoll_wait(ep, e, -1, 0));
	T(epoll_wait(ep, (void *)8, 1, 0));
	T(epoll_wait(f, e, 1, 0));
	T(control(ep, EPOLL_CTL_DEL, p[1], 0, 0));
	T(epoll_ctl(ep, EPOLL_CTL_DEL, p[0], NULL));
	T(next(ep, 0));
	long long s = now_ms();
	T(next(ep, 20));
	Y(now_ms() - s >= 20);
	struct timespec t = { 0, 1000 }, bad = { 0, -1 };
	T(syscall(SYS_epoll_pwait2, ep, e, 1, &t, NULL, 0));
	T(syscall(SYS_epoll_pwait2, ep, e, 1, &bad, NULL, 0));
	T(control(ep, EPOLL_CTL_ADD, p[0], EPOLLIN | EPOLLEXCLUSIVE, 5));
	T(control(ep, EPOLL_CTL_MOD, p[0], EPOLLIN, 5));
	close(p[1]);
	while (read(p[0], &b, 1) == 1) {}
	T(next(ep, 0));
	T(control(ep, EPOLL_CTL_ADD, 0, 0, 5) == 0 || errno == EPERM);
}

static void epoll_lifetimes(void)
{
	int ep = epoll_create1(0), p[2];
	pipe(p);
	write(p[1], "x", 1);
	control(ep, EPOLL_CTL_ADD, p[0], EPOLLIN, 1);
	int d = dup(p[0]);
	close(p[0]);
	T(next(ep, 0));
	T(control(ep, EPOLL_CTL_DEL, p[0], 0, 0));
	close(d);
	T(next(ep, 0));
	/* The number is used again for another file. */
	pipe(p);
	T(control(ep, EPOLL_CTL_ADD, p[0], EPOLLIN, 2));
	dup2(p[0], 30);
	T(control(ep, EPOLL_CTL_ADD, 30, EPOLLIN, 3));
	write(p[1], "x", 1);
	struct epoll_event e[4];
	T(epoll_wait(ep, e, 4, 0));
	/* Shared with a child. */
	pid_t c = fork();
	if (!c) {
		struct epoll_event x[4];
		_exit(epoll_wait(ep, x, 4, 0));
	}
	int st;
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
}

static void nested_epolls(void)
{
	int a = epoll_create1(0), b = epoll_create1(0), c = epoll_create1(0), p[2];
	char x;
	pipe(p);
	T(control(a, EPOLL_CTL_ADD, b, EPOLLIN, 1));
	T(control(b, EPOLL_CTL_ADD, c, EPOLLIN, 2));
	T(control(c, EPOLL_CTL_ADD, a, EPOLLIN, 3));
	T(control(c, EPOLL_CTL_ADD, p[0], EPOLLIN, 4));
	T(next(a, 0));
	write(p[1], "x", 1);
	T(next(a, 0));
	T(next(b, 0));
	T(next(c, 0));
	struct pollfd f = { a, POLLIN };
	T(poll(&f, 1, 0));
	read(p[0], &x, 1);
	T(poll(&f, 1, 0));
	T(next(a, 0));
	int e[7];
	for (int i = 0; i < 7; i++)
		e[i] = epoll_create1(0);
	for (int i = 0; i < 6; i++)
		T(control(e[i], EPOLL_CTL_ADD, e[i + 1], EPOLLIN, 1));
}

static void *waits(void *p)
{
	struct epoll_event e;
	return (void *)(long)epoll_wait(*(int *)p, &e, 1, 2000);
}

static void epoll_threads(void)
{
	int ep = epoll_create1(0), v = eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK);
	pthread_t t[4];
	void *r;
	long sum = 0;
	uint64_t one = 1;
	control(ep, EPOLL_CTL_ADD, v, EPOLLIN | EPOLLET, 1);
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, waits, &ep);
	for (int i = 0; i < 4; i++) {
		ms(20);
		write(v, &one, 8);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], &r);
		sum += (long)r;
	}
	T(sum);
}

static void many_files(void)
{
	int ep = epoll_create1(0), p[100][2], sum = 0;
	struct epoll_event e[100];
	struct rlimit r;
	getrlimit(RLIMIT_NOFILE, &r);
	for (int i = 0; i < 100; i++) {
		pipe(p[i]);
		control(ep, EPOLL_CTL_ADD, p[i][0], EPOLLIN, i);
	}
	for (int i = 0; i < 100; i += 3)
		write(p[i][1], "x", 1);
	int n = epoll_wait(ep, e, 100, 0);
	T(n);
	for (int i = 0; i < n; i++)
		sum += e[i].data.u32;
	T(sum);
	/* Few at a time: all get their turn. */
	char seen[100] = "";
	for (int i = 0; i < 34; i++) {
		epoll_wait(ep, e, 1, 0);
		seen[e[0].data.u32] = 1;
	}
	sum = 0;
	for (int i = 0; i < 100; i++)
		sum += seen[i];
	T(sum);
}

static void signalfds(void)
{
	sigset_t m;
	struct signalfd_siginfo i[4];
	sigemptyset(&m);
	sigaddset(&m, SIGUSR1);
	sigaddset(&m, SIGUSR2);
	sigprocmask(SIG_BLOCK, &m, NULL);
	sigdelset(&m, SIGUSR2);
	int s = signalfd(-1, &m, SFD_NONBLOCK | SFD_CLOEXEC), ep = epoll_create1(0);
	T(fcntl(s, F_GETFD));
	T(read(s, i, sizeof i));
	struct pollfd f = { s, POLLIN };
	T(poll(&f, 1, 0));
	T(control(ep, EPOLL_CTL_ADD, s, EPOLLIN, 6));
	raise(SIGUSR2);
	T(poll(&f, 1, 0));
	kill(getpid(), SIGUSR1);
	T(poll(&f, 1, 0));
	T(next(ep, 0));
	T(read(s, i, 64));
	T(read(s, i, sizeof i));
	T(i[0].ssi_signo);
	T(i[0].ssi_code);
	Y(i[0].ssi_pid == (uint32_t)getpid() && i[0].ssi_uid == getuid());
	T(poll(&f, 1, 0));
	T(next(ep, 0));
	sigaddset(&m, SIGUSR2);
	T(signalfd(s, &m, 0) == s);
	T(poll(&f, 1, 0));
	kill(getpid(), SIGUSR1);
	T(read(s, i, sizeof i));
	T(i[0].ssi_signo * 100 + i[1].ssi_signo);
	sigqueue(getpid(), SIGUSR1, (union sigval){ .sival_int = 42 });
	T(read(s, i, sizeof i));
	T(i[0].ssi_int);
	T(signalfd(99, &m, 0));
	T(signalfd(0, &m, 0));
	T(signalfd(-1, &m, 0x1000));
	T(syscall(SYS_signalfd4, -1, &m, 4, 0));
	T(write(s, i, 128));
	/* A child sees its own signals. */
	raise(SIGUSR1);
	T(CHILD(_exit(poll(&f, 1, 0) * 10 + (read(s, i, sizeof i) == -1 && errno == EAGAIN))));
	T(CHILD(raise(SIGUSR2); _exit(poll(&f, 1, 0) * 10 + (read(s, i, sizeof i) == 128))));
	T(read(s, i, sizeof i));
	/* A blocking read is woken. */
	int b = signalfd(-1, &m, 0);
	pid_t c = fork();
	if (!c) {
		ms(20);
		kill(getppid(), SIGUSR2);
		_exit(0);
	}
	T(read(b, i, sizeof i));
	T(i[0].ssi_signo);
	waitpid(c, NULL, 0);
	c = fork();
	if (!c) {
		ms(20);
		kill(getppid(), SIGUSR1);
		_exit(0);
	}
	T(poll(&f, 1, 2000));
	waitpid(c, NULL, 0);
	T(next(ep, 2000));
	read(s, i, sizeof i);
	sigemptyset(&m);
	sigaddset(&m, SIGCHLD);
	sigprocmask(SIG_BLOCK, &m, NULL);
	signalfd(s, &m, 0);
	c = fork();
	if (!c)
		_exit(7);
	T(poll(&f, 1, 2000));
	T(read(s, i, sizeof i));
	Y(i[0].ssi_pid == (uint32_t)c);
	T(i[0].ssi_code * 100 + i[0].ssi_status);
}

/* Reads all that is there, and prints it. */
static void show(int fd)
{
	char b[4096] __attribute__((aligned(8)));
	int n;
	while ((n = read(fd, b, sizeof b)) > 0)
		for (int at = 0; at < n;) {
			struct inotify_event *e = (void *)(b + at);
			say("event", "wd %d mask %x cookie %s name %s", e->wd, e->mask, e->cookie ? "yes" : "no",
			    e->len ? e->name : "-");
			at += sizeof *e + e->len;
		}
}

static void inotifies(void)
{
	char b[64];
	int i = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	mkdir("d", 0755);
	put("d/f", "x");
	T(fcntl(i, F_GETFD));
	T(inotify_add_watch(i, "d", IN_ALL_EVENTS));
	T(inotify_add_watch(i, "missing", IN_ALL_EVENTS));
	T(inotify_add_watch(i, "d", 0));
	T(inotify_add_watch(99, "d", IN_CREATE));
	T(inotify_add_watch(0, "d", IN_CREATE));
	T(inotify_add_watch(i, "d/f", IN_CREATE | IN_ONLYDIR));
	T(inotify_add_watch(i, "d", IN_MASK_CREATE | IN_CREATE));
	T(inotify_rm_watch(i, 99));
	T(inotify_init1(0x10));
	T(read(i, b, sizeof b));
	put("d/new", "text");
	show(i);
	char c[4];
	int fd = open("d/f", O_RDONLY);
	read(fd, c, 4);
	close(fd);
	show(i);
	chmod("d/f", 0600);
	link("d/f", "d/g");
	rename("d/g", "d/h");
	rename("d/h", "moved");
	rename("moved", "d/back");
	unlink("d/back");
	mkdir("d/sub", 0755);
	rmdir("d/sub");
	symlink("f", "d/l");
	truncate("d/f", 0);
	show(i);
	struct pollfd p = { i, POLLIN };
	T(poll(&p, 1, 0));
	put("d/p", "");
	T(poll(&p, 1, 0));
	int n;
	T(ioctl(i, FIONREAD, &n));
	Y(n > 0);
	T(read(i, b, 16));
	show(i);
	T(inotify_rm_watch(i, 1));
	show(i);
	put("d/q", "");
	show(i);
}

static void inotify_on_files(void)
{
	int i = inotify_init1(IN_NONBLOCK);
	put("f", "x");
	mkdir("d", 0755);
	T(inotify_add_watch(i, "f", IN_ALL_EVENTS));
	T(inotify_add_watch(i, "d", IN_DELETE_SELF | IN_MOVE_SELF));
	T(inotify_add_watch(i, "f", IN_MODIFY | IN_MASK_ADD));
	int fd = open("f", O_WRONLY | O_APPEND);
	write(fd, "a", 1);
	write(fd, "b", 1);
	close(fd);
	show(i);
	rename("f", "g");
	rename("d", "e");
	show(i);
	rmdir("e");
	unlink("g");
	show(i);
	put("h", "");
	T(inotify_add_watch(i, "h", IN_OPEN | IN_ONESHOT));
	close(open("h", O_RDONLY));
	close(open("h", O_RDONLY));
	show(i);
	T(inotify_rm_watch(i, 3));
}

/* What fdinfo shows of the watches. */
static void inotify_fdinfo(void)
{
	int i = inotify_init1(IN_NONBLOCK);
	mkdir("d", 0755);
	put("d/f", "x");
	inotify_add_watch(i, "d", IN_CREATE | IN_ONESHOT | IN_EXCL_UNLINK | IN_ONLYDIR);
	inotify_add_watch(i, "d/f", IN_ALL_EVENTS);
	char path[64], line[256];
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", i);
	FILE *f = fopen(path, "r");
	while (f && fgets(line, sizeof line, f)) {
		unsigned wd, mask, ignored, bytes;
		unsigned long ino, dev;
		char handle[130] = "";
		if (sscanf(line, "inotify wd:%x ino:%lx sdev:%lx mask:%x ignored_mask:%x fhandle-bytes:%x fhandle-type:%*x f_handle:%129[0-9a-f]",
			   &wd, &ino, &dev, &mask, &ignored, &bytes, handle) != 7)
			continue;
		struct stat st;
		stat(wd == 1 ? "d" : "d/f", &st);
		T(wd);
		say("mask", "%x", mask);
		T(ignored);
		T(ino == st.st_ino);
		T(dev == ((unsigned long)major(st.st_dev) << 20 | minor(st.st_dev)));
		T(strlen(handle) == 2 * bytes);
		T(line[strlen(line) - 2] == ' ');
	}
	fclose(f);
}

/* Says what came of what was done. */
static void after(const char *what, int i)
{
	int bytes = 0;
	ioctl(i, FIONREAD, &bytes);
	say("after", "%s: %d bytes", what, bytes);
	show(i);
}

static int watch_file(int i, int fd, unsigned mask)
{
	char p[40];
	sprintf(p, "/proc/self/fd/%d", fd);
	return inotify_add_watch(i, p, mask);
}

/* In which order a file and its directory hear that a name went. */
static void inotify_order(void)
{
	int i = inotify_init1(IN_NONBLOCK);
	mkdir("d", 0755);
	mkdir("d/s", 0755);
	put("d/f", "x");
	put("d/g", "x");
	put("d/h", "x");
	T(inotify_add_watch(i, "d", IN_ALL_EVENTS));
	T(inotify_add_watch(i, "d/f", IN_ALL_EVENTS));
	T(inotify_add_watch(i, "d/s", IN_ALL_EVENTS));
	unlink("d/f");
	after("unlink", i);
	rmdir("d/s");
	after("rmdir", i);
	T(inotify_add_watch(i, "d/g", IN_ALL_EVENTS));
	T(inotify_add_watch(i, "d/h", IN_ALL_EVENTS));
	rename("d/g", "d/h");
	after("rename over a file", i);
	int fd = open("d/h", O_RDWR);
	unlink("d/h");
	after("unlink while it is open", i);
	write(fd, "a", 1);
	after("write", i);
	close(fd);
	after("close", i);
}

/* A file's watches end with its last user, not with its last name. */
static void inotify_users(void)
{
	char home[PATH_MAX];
	getcwd(home, sizeof home);
	int i = inotify_init1(IN_NONBLOCK);
	put("f", "x");
	T(inotify_add_watch(i, "f", IN_ALL_EVENTS));
	int a = open("f", O_RDONLY), b = open("f", O_PATH), c = dup(a);
	char *m = mmap(NULL, 4096, PROT_READ, MAP_SHARED, a, 0);
	after("open", i);
	unlink("f");
	after("unlink", i);
	close(a);
	after("close", i);
	close(c);
	after("close of the copy", i);
	close(b);
	after("close of O_PATH", i);
	munmap(m, 4096);
	after("munmap", i);
	mkdir("d", 0755);
	T(inotify_add_watch(i, "d", IN_ALL_EVENTS));
	chdir("d");
	rmdir("../d");
	after("rmdir", i);
	chdir(home);
	after("chdir", i);
	/* By another process. */
	put("p", "x");
	T(inotify_add_watch(i, "p", IN_DELETE_SELF));
	pid_t child = fork();
	if (!child) {
		open("p", O_RDONLY);
		unlink("p");
		ms(50);
		_exit(0);
	}
	struct pollfd p = { i, POLLIN };
	T(poll(&p, 1, 5000));
	after("exit", i);
	waitpid(child, NULL, 0);
	put("o", "x");
	put("n", "x");
	T(inotify_add_watch(i, "n", IN_ALL_EVENTS));
	a = open("n", O_RDONLY);
	rename("o", "n");
	after("rename over an open file", i);
	close(a);
	after("close", i);
	mkdir("e", 0755);
	put("e/x", "");
	T(inotify_add_watch(i, "e", IN_ALL_EVENTS));
	a = open("e/x", O_RDONLY);
	unlink("e/x");
	rmdir("e");
	after("rmdir below an open file", i);
	close(a);
	after("close", i);
}

/* Watches of files without a name, or with another. */
static void inotify_nameless(void)
{
	int i = inotify_init1(IN_NONBLOCK);
	char p[40];
	put("f", "x");
	int a = open("f", O_RDWR);
	unlink("f");
	T(watch_file(i, a, IN_ALL_EVENTS));
	write(a, "x", 1);
	after("write", i);
	close(a);
	after("close", i);
	T(inotify_rm_watch(i, 1));

	put("f", "x");
	link("f", "g");
	a = open("f", O_RDWR);
	unlink("f");
	T(watch_file(i, a, IN_ALL_EVENTS));
	close(a);
	after("close with another name", i);
	a = open("g", O_WRONLY);
	write(a, "yy", 2);
	close(a);
	after("use of that", i);
	unlink("g");
	after("unlink", i);

	put("f", "x");
	link("f", "g");
	a = open("f", O_RDWR);
	T(watch_file(i, a, IN_ALL_EVENTS));
	unlink("f");
	after("unlink of the name by which it is open", i);
	unlink("g");
	after("unlink of the other", i);
	T(watch_file(i, a, IN_ALL_EVENTS));
	write(a, "x", 1);
	close(a);
	after("close", i);

	T((a = open(".", O_TMPFILE | O_RDWR, 0644)) >= 0);
	T(watch_file(i, a, IN_ALL_EVENTS));
	write(a, "x", 1);
	close(a);
	after("O_TMPFILE", i);
	T((a = open(".", O_TMPFILE | O_RDWR, 0644)) >= 0);
	T(watch_file(i, a, IN_ALL_EVENTS));
	sprintf(p, "/proc/self/fd/%d", a);
	T(linkat(AT_FDCWD, p, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
	after("linkat", i);
	close(a);
	after("close", i);
	unlink("named");
	after("unlink", i);

	a = memfd_create("m", 0);
	T(watch_file(i, a, IN_DELETE_SELF));
	close(a);
	after("memfd", i);
	/* A pipe is not unlinked, and its watch does not end with it. */
	int ends[2];
	pipe(ends);
	int wd = watch_file(i, ends[0], IN_DELETE_SELF);
	close(ends[0]);
	close(ends[1]);
	after("pipe", i);
	T(inotify_rm_watch(i, wd));
	after("inotify_rm_watch", i);
	mkdir("d", 0755);
	a = open("d", O_RDONLY);
	rmdir("d");
	T(watch_file(i, a, IN_ALL_EVENTS));
	close(a);
	after("directory", i);
}

/* What the last unmount of a file system says. */
static void inotify_unmounts(void)
{
	if (geteuid() || unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return;
	int i = inotify_init1(IN_NONBLOCK);
	mkdir("m", 0755);
	mkdir("n", 0755);
	T(mount("t", "m", "tmpfs", 0, NULL));
	T(mount("m", "n", NULL, MS_BIND, NULL));
	T(inotify_add_watch(i, "m", IN_CREATE));
	T(umount("n"));
	after("one of two", i);
	T(umount("m"));
	after("the last", i);
	T(inotify_rm_watch(i, 1));
	T(mount("t", "m", "tmpfs", 0, NULL));
	put("m/f", "x");
	T(inotify_add_watch(i, "m/f", IN_CREATE));
	T(umount("m"));
	after("of a file", i);
	T(mount("t", "m", "tmpfs", 0, NULL));
	mkdir("m/d", 0755);
	T(inotify_add_watch(i, "m/d", IN_CREATE | IN_ONESHOT));
	T(umount("m"));
	after("with IN_ONESHOT", i);
	T(mount("t", "m", "tmpfs", 0, NULL));
	put("m/f", "x");
	put("m/g", "x");
	int a = open("m/f", O_RDWR), b = open("m/g", O_RDWR);
	T(inotify_add_watch(i, "m/f", IN_MODIFY));
	T(inotify_add_watch(i, "m/g", IN_MODIFY));
	unlink("m/g");
	T(umount2("m", MNT_DETACH));
	write(a, "x", 1);
	after("MNT_DETACH", i);
	close(b);
	after("close of one without a name", i);
	close(a);
	after("the last close", i);
}

/* That events were lost wakes, too. */
static void inotify_overflow(void)
{
	int i = inotify_init1(IN_NONBLOCK), ep = epoll_create1(0), most = 0;
	FILE *f = fopen("/proc/sys/fs/inotify/max_queued_events", "r");
	Y(f && fscanf(f, "%d", &most) == 1 && most % 2 == 0);
	mkdir("d", 0755);
	put("d/a", "x");
	T(inotify_add_watch(i, "d", IN_MOVE));
	T(control(ep, EPOLL_CTL_ADD, i, EPOLLIN | EPOLLET, 1));
	for (int n = 0; n < most / 2; n++)
		rename(n % 2 ? "d/b" : "d/a", n % 2 ? "d/a" : "d/b");
	T(next(ep, 0));
	T(next(ep, 0));
	rename("d/a", "d/c");
	T(next(ep, 0));
	rename("d/c", "d/a");
	T(next(ep, 0));
	static char b[1 << 20];
	int last = 0, seen = 0, n;
	while ((n = read(i, b, sizeof b)) > 0)
		for (int at = 0; at < n; seen++) {
			struct inotify_event *e = (void *)(b + at);
			last = e->mask;
			at += sizeof *e + e->len;
		}
	Y(seen == most + 1);
	T(last);
}

static const struct check all[] = {
	CHECK(eventfds), CHECK(polling), CHECK(masks_while_waiting), CHECK(selecting), CHECK(epolls),
	CHECK(epoll_lifetimes), CHECK(nested_epolls), CHECK(epoll_threads), CHECK(many_files),
	CHECK(signalfds), CHECK(inotifies), CHECK(inotify_on_files), CHECK(inotify_fdinfo),
	CHECK(inotify_order), CHECK(inotify_users), CHECK(inotify_nameless), CHECK(inotify_unmounts),
	CHECK(inotify_overflow),
};
MAIN(all)
