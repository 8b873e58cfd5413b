/* Pipes and FIFOs. */
#define AREA "pipes"
#include "check.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>

static int nonblock(int fd)
{
	return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static int revents(int fd, int events)
{
	struct pollfd p = { fd, events };
	poll(&p, 1, 0);
	return p.revents;
}

static void basics(void)
{
	int p[2];
	char b[16] = "";
	struct stat s;
	T(pipe(p));
	T(p[0] * 10 + p[1]);
	T(write(p[1], "hello", 5));
	T(read(p[0], b, 3));
	T(read(p[0], b + 3, 10));
	S(b, 5);
	T(write(p[0], "x", 1));
	T(read(p[1], b, 1));
	T(lseek(p[0], 0, SEEK_SET));
	T(pread(p[0], b, 1, 0));
	T(fstat(p[0], &s));
	T(S_ISFIFO(s.st_mode));
	T(s.st_mode & 07777);
	T(fcntl(p[0], F_GETFL) & O_ACCMODE);
	T(fcntl(p[1], F_GETFL) & O_ACCMODE);
	T(write(p[1], "", 0));
	T(read(p[0], b, 0));
	write(p[1], "last", 4);
	close(p[1]);
	T(read(p[0], b, 16));
	T(read(p[0], b, 16));
	T(pipe2(p, 0x1));
	T(pipe2(p, O_NONBLOCK | O_CLOEXEC));
	T(fcntl(p[0], F_GETFD) * 10 + fcntl(p[1], F_GETFD));
	T(fcntl(p[0], F_GETFL) & O_NONBLOCK ? 1 : 0);
	T(pipe(NULL));
	T(read(p[0], b, 1));
}

static void capacity(void)
{
	int p[2], n;
	static char big[200000];
	pipe(p);
	T(fcntl(p[0], F_GETPIPE_SZ));
	nonblock(p[1]);
	T(write(p[1], big, sizeof big));
	T(write(p[1], big, 1));
	T(revents(p[1], POLLOUT));
	T(ioctl(p[0], FIONREAD, &n));
	T(n);
	T(read(p[0], big, 100));
	T(revents(p[1], POLLOUT));
	T(write(p[1], big, 1));
	T(read(p[0], big, 4096));
	T(revents(p[1], POLLOUT));
	T(write(p[1], big, 4096) > 0);
	T(fcntl(p[0], F_SETPIPE_SZ, 4096));
	while (read(p[0], big, 60000) == 60000) {}
	T(fcntl(p[0], F_SETPIPE_SZ, 4096));
	T(fcntl(p[0], F_SETPIPE_SZ, 5000));
	T(fcntl(p[0], F_SETPIPE_SZ, 1 << 20));
	T(fcntl(p[1], F_GETPIPE_SZ));
	T(fcntl(p[1], F_SETPIPE_SZ, -1));
	int f = open("f", O_CREAT | O_RDWR, 0644);
	T(fcntl(f, F_GETPIPE_SZ));
}

static void atomicity(void)
{
	int p[2];
	static char big[65536];
	pipe(p);
	nonblock(p[1]);
	T(write(p[1], big, 65536 - 100));
	T(write(p[1], big, 4096));
	T(write(p[1], big, 200));
	T(write(p[1], big, 5000));
	int q[2], n = 0, r;
	pipe(q);
	pid_t c = fork();
	if (!c) {
		close(q[0]);
		_exit(write(q[1], big, 65536) == 65536 && write(q[1], big, 65536) == 65536 ? 3 : 4);
	}
	close(q[1]);
	ms(20);
	while ((r = read(q[0], big, 30000)) > 0)
		n += r;
	T(n);
	int st;
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
}

static void broken(void)
{
	int p[2];
	char b;
	pipe(p);
	write(p[1], "x", 1);
	close(p[0]);
	signal(SIGPIPE, SIG_IGN);
	T(write(p[1], "x", 1));
	T(write(p[1], "", 0));
	T(revents(p[1], POLLOUT) == (POLLOUT | POLLERR));
	T(CHILD(signal(SIGPIPE, SIG_DFL); write(p[1], "x", 1)));
	pipe(p);
	T(revents(p[0], POLLIN));
	T(revents(p[1], POLLOUT));
	close(p[1]);
	T(revents(p[0], POLLIN));
	pipe(p);
	write(p[1], "x", 1);
	close(p[1]);
	T(revents(p[0], POLLIN));
	T(read(p[0], &b, 1));
	T(revents(p[0], POLLIN));
	/* A writer that blocks learns that the reader goes. */
	static char big[70000];
	pipe(p);
	pid_t c = fork();
	if (!c) {
		close(p[0]);
		int r = write(p[1], big, 70000);
		_exit(r == 65536 ? 1 : r == -1 && errno == EPIPE ? 2 : 3);
	}
	ms(20);
	close(p[0]);
	int st;
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
}

static void vectors(void)
{
	int p[2];
	char a[3], b[5];
	struct iovec w[2] = { { "ab", 2 }, { "cdef", 4 } }, r[2] = { { a, 3 }, { b, 5 } };
	pipe(p);
	T(writev(p[1], w, 2));
	T(readv(p[0], r, 2));
	S(a, 3);
	S(b, 3);
}

static void packets(void)
{
	int p[2];
	char b[16];
	T(pipe2(p, O_DIRECT));
	write(p[1], "one", 3);
	write(p[1], "three", 5);
	T(read(p[0], b, 16));
	T(read(p[0], b, 2));
	nonblock(p[0]);
	T(read(p[0], b, 16));
}

static void splicing(void)
{
	int p[2], q[2], f = open("f", O_CREAT | O_RDWR, 0644);
	char b[32] = "";
	loff_t at = 2;
	pipe(p), pipe(q);
	write(f, "0123456789", 10);
	T(splice(f, &at, p[1], NULL, 4, 0));
	T(at);
	T(tee(p[0], q[1], 10, 0));
	T(read(q[0], b, 32));
	S(b, 4);
	T(splice(p[0], NULL, q[1], NULL, 2, 0));
	T(read(q[0], b, 32));
	at = 8;
	T(splice(p[0], NULL, f, &at, 100, 0));
	T(at);
	T(pread(f, b, 32, 0));
	S(b, 10);
	T(splice(p[0], NULL, f, NULL, 10, SPLICE_F_NONBLOCK));
	T(splice(f, NULL, f, NULL, 10, 0));
	T(splice(p[0], &at, f, NULL, 10, 0));
	T(splice(p[1], NULL, f, NULL, 10, 0));
	T(splice(p[0], NULL, f, NULL, 10, 0x100));
	T(splice(p[0], NULL, f, NULL, 0, 0));
	T(tee(p[0], p[1], 10, 0));
	T(tee(f, p[1], 10, 0));
	struct iovec v = { "vm", 2 };
	T(vmsplice(p[1], &v, 1, 0));
	T(read(p[0], b, 32));
	S(b, 2);
	T(vmsplice(f, &v, 1, 0));
	close(p[1]);
	T(splice(p[0], NULL, f, NULL, 10, 0));
}

static int broken_pipes;

static void on_pipe(int s)
{
	broken_pipes++;
}

/* What is moved to where nobody reads any more. */
static void moved_to_nobody(void)
{
	int p[2], q[2], s[2], d[2], f = open("f", O_CREAT | O_RDWR, 0644);
	struct iovec v = { "vm", 2 };
	loff_t from_start = 0;
	struct sigaction a = { .sa_handler = on_pipe };
	sigaction(SIGPIPE, &a, NULL);
	pipe(p), pipe(q), socketpair(AF_UNIX, SOCK_STREAM, 0, s), socketpair(AF_UNIX, SOCK_DGRAM, 0, d);
	write(p[1], "abcdef", 6), write(f, "0123456789", 10);
	close(q[0]), close(s[1]), close(d[1]);
	T(splice(f, &from_start, q[1], NULL, 4, 0)); T(broken_pipes);
	T(tee(p[0], q[1], 4, 0)); T(broken_pipes);
	T(splice(p[0], NULL, q[1], NULL, 4, 0)); T(broken_pipes);
	T(splice(p[0], NULL, s[0], NULL, 3, 0)); T(broken_pipes);
	T(sendfile(s[0], f, &from_start, 4)); T(broken_pipes);
	T(sendfile(q[1], f, &from_start, 4)); T(broken_pipes);
	T(sendfile(d[0], f, &from_start, 4)); T(broken_pipes);
	T(vmsplice(q[1], &v, 1, 0)); T(broken_pipes);
	T(vmsplice(q[1], &v, 0, 0)); T(broken_pipes);
}

/* vmsplice(2) waits for room once, and takes what fits. */
static void spliced_memory(void)
{
	static __attribute__((aligned(4096))) char big[131072], got[131072];
	int p[2], f = open("f", O_CREAT | O_RDWR, 0644);
	struct iovec v = { big, sizeof big };
	memset(big, 'x', sizeof big);
	pipe(p);
	T(vmsplice(p[1], &v, 1, 0));
	T(vmsplice(p[1], &v, 1, SPLICE_F_NONBLOCK));
	T(read(p[0], got, sizeof got));
	Y(!memcmp(got, big, 65536));
	T(vmsplice(p[0], &v, 1, SPLICE_F_NONBLOCK));
	/* The descriptor's own flag does not count. */
	nonblock(p[1]);
	T(CHILD(signal(SIGALRM, SIG_DFL); alarm(1); vmsplice(p[1], &v, 1, 0); vmsplice(p[1], &v, 1, 0)));
	T(vmsplice(f, &v, 0, 0));
	T(vmsplice(f, &v, 1, 0));
	T(vmsplice(-1, &v, 0, 0));
}

/* Not all files can be spliced to: that is told before the pipe has anything. */
static void unspliceable(void)
{
	int p[2], f = open("f", O_CREAT | O_RDWR, 0644), e = eventfd(0, 0), ep = epoll_create1(0);
	int full = open("/dev/full", O_RDWR), zero = open("/dev/zero", O_RDWR), null = open("/dev/null", O_RDWR);
	int set = open("/proc/sys/kernel/domainname", O_WRONLY), sfd = signalfd(-1, &(sigset_t){ 0 }, 0);
	loff_t o = 0;
	pipe(p), write(f, "0123456789", 10);
	T(splice(p[0], NULL, full, NULL, 4, 0));
	T(splice(p[0], NULL, e, NULL, 4, 0));
	T(splice(p[0], NULL, ep, NULL, 4, 0));
	T(splice(p[0], NULL, sfd, NULL, 4, 0));
	T(splice(p[0], NULL, zero, NULL, 4, SPLICE_F_NONBLOCK));
	T(splice(p[0], NULL, null, NULL, 4, SPLICE_F_NONBLOCK));
	T(splice(p[0], NULL, set, NULL, 4, SPLICE_F_NONBLOCK));
	T(sendfile(full, f, &o, 8));
	T(sendfile(e, f, &o, 8));
	T(sendfile(ep, f, &o, 8));
	T(sendfile(zero, f, &o, 8));
	T(o);
}

/* fs.pipe-max-size: a power of two; how large a pipe may be whose user may not have all. */
static void largest(void)
{
	const char *name = "/proc/sys/fs/pipe-max-size";
	char was[32] = "", is[32] = "";
	int p[2], fd = open(name, O_RDONLY);
	read(fd, was, 31);
	T(set_to(name, "4294967295"));
	T(set_to(name, "-1"));
	T(set_to(name, "many"));
	T(may_change() ? set_to(name, "3000000") : 7);
	pread(fd, is, 31, 0);
	T(may_change() ? atoi(is) : 1 << 22);
	int large = CHILD(drop_root(); pipe(p); _exit(fcntl(p[0], F_SETPIPE_SZ, 1 << 21) == 1 << 21));
	T(may_change() ? large : 1);
	set_to(name, was);
	T(CHILD(drop_root(); pipe(p); _exit(fcntl(p[0], F_SETPIPE_SZ, 1 << 21) == -1 && errno == EPERM)));
	T(CHILD(drop_root(); _exit(open(name, O_WRONLY) == -1 && errno == EACCES)));
}

static void fifos(void)
{
	char b[8] = "";
	T(mkfifo("p", 0600));
	T(mkfifo("p", 0600));
	T(open("p", O_WRONLY | O_NONBLOCK));
	int r = open("p", O_RDONLY | O_NONBLOCK);
	Y(r >= 0);
	T(read(r, b, 1));
	T(revents(r, POLLIN));
	int w = open("p", O_WRONLY | O_NONBLOCK);
	Y(w >= 0);
	T(read(r, b, 1));
	T(write(w, "ab", 2));
	T(read(r, b, 8));
	close(w);
	T(read(r, b, 1));
	T(revents(r, POLLIN));
	close(r);
	int rw = open("p", O_RDWR);
	T(write(rw, "xyz", 3));
	T(read(rw, b, 8));
	close(rw);
	/* Opens wait for each other. */
	pid_t c = fork();
	if (!c) {
		int o = open("p", O_WRONLY);
		write(o, "hi", 2);
		_exit(0);
	}
	r = open("p", O_RDONLY);
	T(read(r, b, 8));
	T(read(r, b, 8));
	waitpid(c, NULL, 0);
	close(r);
	T(lseek(open("p", O_RDWR), 0, SEEK_CUR));
	T(open("p", O_RDONLY | O_DIRECTORY));
	T(truncate("p", 0));
	/* What was written is gone with the last descriptor. */
	rw = open("p", O_RDWR);
	write(rw, "old", 3);
	close(rw);
	rw = open("p", O_RDWR | O_NONBLOCK);
	T(read(rw, b, 8));
}

static void reopened(void)
{
	int p[2];
	char name[64], b[8] = "";
	pipe(p);
	sprintf(name, "/proc/self/fd/%d", p[0]);
	int w = open(name, O_WRONLY);
	Y(w >= 0);
	T(write(w, "again", 5));
	T(read(p[0], b, 8));
	S(b, 5);
	int n = readlink(name, b, 6);
	T(n);
	S(b, 6);
}

static void between_processes(void)
{
	int p[2], q[2];
	char b = 0;
	pipe(p), pipe(q);
	pid_t c = fork();
	if (!c) {
		while (read(p[0], &b, 1) == 1 && b < 100) {
			b++;
			write(q[1], &b, 1);
		}
		_exit(b);
	}
	while (b < 100) {
		write(p[1], &b, 1);
		read(q[0], &b, 1);
	}
	write(p[1], &b, 1);
	int st;
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
	/* A pipeline of programs. */
	T(WEXITSTATUS(system("seq 1 2000 | grep 7 | wc -l > out; exit $(($(cat out) % 200))")));
}

static void *blocked_reader(void *p)
{
	char b;
	return (void *)read(*(int *)p, &b, 1);
}

static void threads(void)
{
	int p[2];
	pthread_t t[4];
	void *r;
	long sum = 0;
	pipe(p);
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, blocked_reader, &p[0]);
	ms(20);
	write(p[1], "ab", 2);
	ms(20);
	write(p[1], "c", 1);
	close(p[1]);
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], &r);
		sum += (long)r;
	}
	T(sum);
}

/* Offsets where there are none are told before what the end is open for. */
static void places(void)
{
	int p[2];
	char b[4] = "";
	struct iovec v = { b, 4 };
	pipe(p);
	T(pread(p[1], b, 4, 0));
	T(pwrite(p[0], b, 4, 0));
	T(preadv(p[1], &v, 1, 0));
	T(pwritev(p[0], &v, 1, 0));
	T(preadv2(p[1], &v, 1, 0, 0));
	T(pwritev2(p[0], &v, 1, 0, 0));
	T(preadv2(p[1], &v, 1, -1, 0));
	T(pwritev2(p[0], &v, 1, -1, 0));
	T(pwritev2(p[0], (void *)8, 1, 0, 0));
	T(pwritev2(p[0], &v, 1, 0, 0x4000));
	T(pread(p[1], (void *)8, 4, 0));
	int f = open("f", O_CREAT | O_WRONLY, 0600);
	T(pread(f, b, 4, 0));
	T(readahead(f, 0, 4));
	T(readahead(p[0], 0, 4));
	T(readahead(open("/dev/zero", O_RDONLY), 0, 4));
	T(readahead(open(".", O_RDONLY), 0, 4));
	T(readahead(open("f", O_RDONLY), 0, 4));
}

static const struct check all[] = {
	CHECK(places),
	CHECK(basics), CHECK(capacity), CHECK(atomicity), CHECK(broken), CHECK(vectors), CHECK(packets),
	CHECK(splicing), CHECK(moved_to_nobody), CHECK(spliced_memory), CHECK(unspliceable), CHECK(largest), CHECK(fifos), CHECK(reopened), CHECK(between_processes), CHECK(threads),
};
MAIN(all)
