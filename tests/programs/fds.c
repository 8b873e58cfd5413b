/* Descriptors: numbers, flags, duplicating, what is told of them. */
#define AREA "fds"
#include "check.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>

static void numbers(void)
{
	T(open("/dev/null", O_RDONLY));
	T(dup(0));
	T(dup(0));
	T(close(4));
	T(dup(0));
	T(dup2(0, 10));
	T(dup(0));
	T(dup2(0, 0));
	T(dup2(99, 5));
	T(dup2(99, 99));
	T(dup2(0, -1));
	T(dup3(0, 11, O_CLOEXEC));
	T(fcntl(11, F_GETFD));
	T(dup3(0, 0, 0));
	T(dup3(0, 12, O_APPEND));
	T(dup3(99, 99, 0));
	T(fcntl(0, F_DUPFD, 20));
	T(fcntl(0, F_DUPFD, 20));
	T(fcntl(0, F_DUPFD_CLOEXEC, 20));
	/* An int, whatever stands above it. */
	T(syscall(SYS_fcntl, 0, F_DUPFD, 0x500000000 + 20));
	T(syscall(SYS_fcntl, 0, F_DUPFD, 0x5ffffffffL));
	T(syscall(SYS_accept4, -1, NULL, NULL, 0xffff));
	T(syscall(SYS_sync_file_range, -1, 0L, 0L, 0xffff));
	T(fcntl(22, F_GETFD));
	T(fcntl(0, F_DUPFD, -1));
	T(fcntl(0, F_DUPFD, 1 << 30));
	T(close(99));
	T(close(-1));
	T(close(10));
	T(close(10));
}

static void flags(void)
{
	int fd = open("f", O_CREAT | O_RDWR | O_APPEND | O_EXCL | O_CLOEXEC, 0644);
	T(fcntl(fd, F_GETFD));
	T(fcntl(fd, F_SETFD, 0));
	T(fcntl(fd, F_GETFD));
	T(fcntl(fd, F_SETFD, 1));
	T(fcntl(dup(fd), F_GETFD));
	T(fcntl(fd, F_GETFL) & ~0100000);
	T(fcntl(fd, F_SETFL, O_NONBLOCK));
	T(fcntl(fd, F_GETFL) & ~0100000);
	T(fcntl(dup(fd), F_GETFL) & O_NONBLOCK ? 1 : 0);
	T(fcntl(fd, F_SETFL, O_RDONLY | O_CREAT | O_TRUNC));
	T(fcntl(fd, F_GETFL) & ~0100000);
	T(fcntl(99, F_GETFL));
	T(fcntl(fd, 9999));
	T(fcntl(fd, F_GETOWN));
	int on = 1, p[2];
	T(ioctl(fd, FIONBIO, &on));
	T(fcntl(fd, F_GETFL) & O_NONBLOCK ? 1 : 0);
	T(ioctl(fd, FIOCLEX));
	T(fcntl(fd, F_GETFD));
	T(ioctl(fd, FIONCLEX));
	T(fcntl(fd, F_GETFD));
	T(ioctl(fd, 0x12345));
	T(ioctl(99, FIONBIO, &on));
	T(ioctl(fd, FIONBIO, 8));
	write(fd, "abc", 3);
	lseek(fd, 1, SEEK_SET);
	T(ioctl(fd, FIONREAD, &on));
	T(on);
	pipe(p);
	T(fcntl(p[0], F_SETOWN, getpid()));
	Y(fcntl(p[0], F_GETOWN) == getpid());
	T(fcntl(p[0], F_SETOWN, 0));
	T(fcntl(p[0], F_SETSIG, SIGUSR1));
	T(fcntl(p[0], F_GETSIG));
	T(fcntl(p[0], F_SETSIG, 100));
}

/* Only what open(2) has opened may be large, and only a regular file has something left. */
static void large(void)
{
	static const char *names[] = { "pipe", "socket", "eventfd", "epoll", "pidfd", "memfd", "file", "directory", "path", "null", "fifo" };
	int p[2], s[2];
	pipe(p), socketpair(AF_UNIX, SOCK_STREAM, 0, s), mkfifo("fifo", 0600);
	int fds[] = { p[1], s[0], eventfd(0, 0), epoll_create1(0), syscall(SYS_pidfd_open, getpid(), 0), memfd_create("m", 0),
		open("f", O_CREAT | O_RDWR, 0644), open(".", O_RDONLY), open(".", O_PATH), open("/dev/null", O_WRONLY), open("fifo", O_RDWR) };
	for (unsigned i = 0; i < sizeof fds / sizeof *fds; i++) {
		char name[40], line[100];
		unsigned told = 0;
		int left = -1;
		snprintf(name, sizeof name, "/proc/self/fdinfo/%d", fds[i]);
		FILE *f = fopen(name, "r");
		while (f && fgets(line, sizeof line, f))
			sscanf(line, "flags: %o", &told);
		say(names[i], "%#x %#x", fcntl(fds[i], F_GETFL), told);
		fclose(f);
		if (i < 6 && i != 1 && i != 5) continue;
		errno = 0;
		long r = ioctl(fds[i], FIONREAD, &left);
		report(names[i], r, errno);
		say(names[i], "%d", left);
	}
}

/* fs.nr_open: above the highest limit. (It is the machine's: only what leaves it as it is.) */
static void most(void)
{
	const char *name = "/proc/sys/fs/nr_open";
	char was[32] = "";
	struct rlimit l;
	int fd = open(name, O_RDONLY);
	read(fd, was, 31);
	getrlimit(RLIMIT_NOFILE, &l);
	l.rlim_max = atol(was) + 1;
	T(setrlimit(RLIMIT_NOFILE, &l));
	T(set_to(name, was) > 0);
	T(set_to(name, "63"));
	T(set_to(name, "2147483647"));
	T(set_to(name, "none"));
	T(CHILD(drop_root(); _exit(open(name, O_WRONLY) == -1 && errno == EACCES)));
}

static void ranges(void)
{
	for (int i = 3; i < 20; i++)
		dup2(0, i);
	T(close_range(5, 7, 0));
	T(fcntl(4, F_GETFD));
	T(fcntl(5, F_GETFD));
	T(fcntl(8, F_GETFD));
	T(close_range(10, 12, CLOSE_RANGE_CLOEXEC));
	T(fcntl(9, F_GETFD));
	T(fcntl(10, F_GETFD));
	T(close_range(7, 5, 0));
	T(close_range(5, 7, 0x100));
	T(CHILD(close_range(3, ~0U, CLOSE_RANGE_UNSHARE); _exit(fcntl(13, F_GETFD) == -1)));
	T(fcntl(13, F_GETFD));
	T(close_range(13, ~0U, 0));
	T(fcntl(19, F_GETFD));
	T(dup(0));
}

static void shared(void)
{
	char b[4];
	put("f", "abcdef");
	int a = open("f", O_RDONLY), d = dup(a), o = open("f", O_RDONLY);
	read(a, b, 2);
	T(lseek(d, 0, SEEK_CUR));
	T(lseek(o, 0, SEEK_CUR));
	T(lseek(d, 4, SEEK_SET));
	T(read(a, b, 4));
	T(syscall(SYS_kcmp, getpid(), getpid(), 0, a, d) == 0 || errno == ENOSYS || errno == EPERM);
	close(a);
	T(lseek(d, 0, SEEK_CUR));
}

static void bad_everywhere(void)
{
	char b[8];
	struct stat s;
	struct sockaddr_un u = { AF_UNIX };
	socklen_t l = sizeof u;
	struct epoll_event e = { 0 };
	int fd = 77;
	T(read(fd, b, 1));
	T(write(fd, b, 1));
	T(fstat(fd, &s));
	T(lseek(fd, 0, 0));
	T(fsync(fd));
	T(ftruncate(fd, 0));
	T(fchmod(fd, 0));
	T(fchdir(fd));
	T(dup(fd));
	T(bind(fd, (void *)&u, l));
	T(connect(fd, (void *)&u, l));
	T(listen(fd, 1));
	T(accept(fd, NULL, NULL));
	T(getsockname(fd, (void *)&u, &l));
	T(send(fd, b, 1, 0));
	T(recv(fd, b, 1, 0));
	T(shutdown(fd, 0));
	T(setsockopt(fd, 1, 2, b, 4));
	T(epoll_ctl(fd, EPOLL_CTL_ADD, 0, &e));
	T(epoll_wait(fd, &e, 1, 0));
	T(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED ? -1 : 0);
	T(syscall(SYS_getdents64, fd, b, 8));
	T(fallocate(fd, 0, 0, 1));
	T(syscall(SYS_timerfd_settime, fd, 0, NULL, NULL));
	T(syscall(SYS_signalfd4, fd, b, 8, 0));
	T(syscall(SYS_inotify_rm_watch, fd, 1));
	T(syscall(SYS_sendfile, fd, 0, NULL, 1));
	T(syscall(SYS_splice, fd, NULL, 0, NULL, 1, 0));
	T(syscall(SYS_flock, fd, 1));
	int f = open("f", O_CREAT | O_RDWR, 0644);
	T(bind(f, (void *)&u, l));
	T(connect(f, (void *)&u, l));
	T(listen(f, 1));
	T(accept(f, NULL, NULL));
	T(send(f, b, 1, 0));
	T(recv(f, b, 1, 0));
	T(getsockopt(f, 1, 3, b, &l));
	T(epoll_wait(f, &e, 1, 0));
	T(syscall(SYS_inotify_rm_watch, f, 1));
	T(syscall(SYS_signalfd4, f, b, 8, 0));
	T(fchdir(f));
}

static int by_number(const void *a, const void *b)
{
	return atoi(*(char **)a) - atoi(*(char **)b);
}

static void in_proc(void)
{
	char *names[32], b[256], line[256];
	int n = 0, p[2], fd = open("f", O_CREAT | O_RDWR | O_APPEND, 0644);
	pipe(p);
	socket(AF_UNIX, SOCK_STREAM, 0);
	eventfd(0, 0);
	epoll_create1(0);
	dup2(0, 50);
	DIR *d = opendir("/proc/self/fd");
	for (struct dirent *e; (e = readdir(d));)
		if (e->d_name[0] != '.' && atoi(e->d_name) != dirfd(d) && n < 32)
			names[n++] = strdup(e->d_name);
	qsort(names, n, sizeof *names, by_number);
	for (int i = 3; i < n; i++) {
		sprintf(line, "/proc/self/fd/%s", names[i]);
		int l = readlink(line, b, sizeof b - 1);
		b[l > 0 ? l : 0] = 0;
		/* No inode numbers. */
		int to = 0;
		for (char *c = b; *c; c++) {
			int digit = *c >= '0' && *c <= '9';
			if (!digit || !to || b[to - 1] != '#')
				b[to++] = digit ? '#' : *c;
		}
		b[to] = 0;
		char *base = strrchr(b, '/');
		if (atoi(names[i]) != 50)
			say(names[i], "%s", base ? base : b);
	}
	T(n);
	write(fd, "abc", 3);
	sprintf(line, "/proc/self/fdinfo/%d", fd);
	FILE *f = fopen(line, "r");
	for (int i = 0; f && i < 2 && fgets(line, sizeof line, f); i++)
		S(line, strlen(line) - 1);
	struct stat s;
	T(stat("/proc/self/fd/99", &s));
	sprintf(line, "/dev/fd/%d", fd);
	T(stat(line, &s));
	T(s.st_size);
	T(open("/dev/stdin", O_RDONLY) >= 0);
}

static void many(void)
{
	struct rlimit r;
	getrlimit(RLIMIT_NOFILE, &r);
	r.rlim_cur = r.rlim_max < 3000 ? r.rlim_max : 3000;
	setrlimit(RLIMIT_NOFILE, &r);
	int n = 0, last = 0, fd;
	while (n < 900 && (fd = open("/dev/null", O_RDONLY)) >= 0)
		last = fd, n++;
	T(n);
	T(last);
	for (int i = 3; i <= last; i += 2)
		close(i);
	T(dup(0));
	T(dup(0));
	T(fcntl(0, F_DUPFD, 500));
	T(fcntl(0, F_DUPFD, 500));
	fd_set s;
	FD_ZERO(&s);
	FD_SET(last + 1 < 1024 ? last : 1000, &s);
	struct timeval tv = { 0, 0 };
	T(select(1024, &s, NULL, NULL, &tv));
}

static void *closer(void *p)
{
	ms(20);
	return (void *)(long)close(*(int *)p);
}

static void closed_while_used(void)
{
	int p[2];
	char b;
	void *r;
	pthread_t t;
	pipe(p);
	/* The call that runs keeps the file; the number is free at once. */
	pthread_create(&t, NULL, closer, &p[0]);
	pid_t c = fork();
	if (!c) {
		ms(60);
		write(p[1], "x", 1);
		_exit(0);
	}
	T(read(p[0], &b, 1));
	pthread_join(t, &r);
	T((long)r);
	T(read(p[0], &b, 1));
	waitpid(c, NULL, 0);
}

/* What Linux looks at first, where a call has several things wrong. */
static void orders(void)
{
	char b[16] = "0123456789abcde";
	struct iovec v = { b, 4 };
	int f = open("f", O_CREAT | O_RDWR, 0644), r = open("f", O_RDONLY), w = open("f", O_WRONLY), p[2], e = eventfd(0, EFD_NONBLOCK);
	uint64_t n[2] = { 3, 4 };
	pipe(p);
	write(f, b, 10);
	T(splice(-1, NULL, -1, NULL, 0, ~0u));
	T(splice(-1, NULL, -1, NULL, 1, ~0u));
	T(splice(-1, NULL, -1, NULL, 1, 0));
	T(tee(-1, -1, 0, ~0u));
	T(tee(-1, -1, 0, 0));
	T(tee(-1, -1, 1, 0));
	T(vmsplice(-1, &v, 1, ~0u));
	T(vmsplice(-1, &v, 1, 0));
	T(preadv2(-1, &v, 1, 0, ~0));
	T(preadv2(w, &v, 1, 0, ~0));
	T(preadv2(r, &v, 1, 0, ~0));
	T(preadv2(r, &v, 0, 0, ~0));
	T(preadv2(r, (void *)1, 1, 0, ~0));
	T(preadv2(-1, &v, 1, -2, 0));
	T(pwritev2(r, &v, 1, 0, ~0));
	T(pwritev2(w, &v, 1, 0, ~0));
	T(copy_file_range(-1, NULL, -1, NULL, 1, 1));
	T(copy_file_range(r, (void *)1, w, NULL, 1, 1));
	T(copy_file_range(r, NULL, w, NULL, 1, 1));
	T(copy_file_range(w, NULL, r, NULL, 1, 0));
	T(copy_file_range(p[0], NULL, r, NULL, 1, 0));
	T(copy_file_range(p[1], NULL, p[1], NULL, 1, 0));
	T(syscall(SYS_execveat, AT_FDCWD, "", NULL, NULL, ~0u & ~AT_EMPTY_PATH));
	T(syscall(SYS_execveat, AT_FDCWD, (void *)1, NULL, NULL, ~0u));
	T(syscall(SYS_execveat, AT_FDCWD, "/bin/true", NULL, NULL, ~0u));
	T(write(e, n, 16));
	T(read(e, n, 8));
	Y(n[0] == 3);
	T(write(e, n, 7));
}

/* An exit signal that there is not is kept, and nothing is sent. */
static void strange_exit_signal(void)
{
	int status = 0;
	pid_t c = syscall(SYS_clone, 200, NULL, NULL, NULL, NULL);
	if (!c)
		_exit(7);
	Y(c > 0);
	T(waitpid(c, &status, 0));
	T(waitpid(c, &status, __WALL) == c);
	T(WEXITSTATUS(status));
}

/* F_DUPFD_QUERY (Linux 6.10) and F_CREATED_QUERY (6.12). */
static void asked(void)
{
	int a = open("f", O_CREAT | O_RDWR, 0600), b = open("f", O_CREAT | O_RDWR, 0600), c = dup(a);
	int d = open(".", O_TMPFILE | O_RDWR, 0600), p = open("f", O_PATH), q = dup(p);
	if (fcntl(a, 1028) == -1)
		return;
	T(fcntl(a, 1028));
	T(fcntl(b, 1028));
	T(fcntl(c, 1028));
	T(fcntl(d, 1028));
	T(fcntl(p, 1028));
	T(fcntl(a, 1027, c));
	T(fcntl(a, 1027, b));
	T(fcntl(a, 1027, a));
	T(fcntl(a, 1027, 999));
	T(fcntl(a, 1027, -1));
	T(fcntl(p, 1027, q));
	T(fcntl(999, 1027, a));
}

/* Locks of what has no name: as systemd locks a socket that it keeps something in. */
static void nameless_locks(void)
{
	int s[2], p[2], e = eventfd(0, 0);
	socketpair(AF_UNIX, SOCK_DGRAM, 0, s);
	pipe(p);
	struct flock w = { .l_type = F_WRLCK }, r = { .l_type = F_RDLCK }, q = w, o = w;
	T(lockf(s[0], F_LOCK, 0));
	T(fcntl(s[0], F_SETLK, &r));
	T(fcntl(s[0], F_SETLK, &w));
	T(fcntl(p[0], F_SETLK, &w));
	T(fcntl(p[0], F_SETLK, &r));
	T(fcntl(p[1], F_SETLK, &w));
	T(fcntl(p[1], F_SETLK, &r));
	T(fcntl(e, F_SETLK, &w));
	T(flock(s[1], LOCK_EX | LOCK_NB));
	T(CHILD(
		T(fcntl(s[0], F_GETLK, &q));
		T(q.l_type);
		Y(q.l_pid == getppid());
		T(fcntl(s[0], F_SETLK, &w));
		T(fcntl(s[1], F_SETLK, &w));
		T(flock(s[1], LOCK_SH | LOCK_NB));
		T(lockf(e, F_TEST, 0));
	));
	T(lockf(s[0], F_ULOCK, 0));
	T(CHILD(T(fcntl(s[0], F_SETLK, &w)); T(close(s[0]))));
	int again = dup(s[0]);
	T(fcntl(s[0], F_SETLK, &w));
	close(again);
	T(CHILD(T(fcntl(s[0], F_SETLK, &w))));
	T(fcntl(s[0], F_OFD_SETLK, &o));
	T(CHILD(T(fcntl(s[0], F_OFD_SETLK, &o)); T(fcntl(s[0], F_SETLK, &w))));
}

static const struct check all[] = {
	CHECK(asked), CHECK(numbers), CHECK(flags), CHECK(large), CHECK(most), CHECK(ranges), CHECK(shared), CHECK(bad_everywhere), CHECK(in_proc),
	CHECK(many), CHECK(closed_while_used), CHECK(orders), CHECK(strange_exit_signal),
	CHECK(nameless_locks),
};
MAIN(all)
