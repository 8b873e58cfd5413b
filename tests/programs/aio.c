/* Linux AIO: io_setup and its kin, the ring, polling requests. */
#define AREA "aio"
#include "check.h"
#include <linux/aio_abi.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>

/* struct aio_ring, which no header has. */
struct ring {
	unsigned id, nr, head, tail, magic, compat, incompat, header;
	struct io_event events[];
};

static long setup(unsigned n, aio_context_t *c) { return syscall(SYS_io_setup, n, c); }
static long destroy(aio_context_t c) { return syscall(SYS_io_destroy, c); }
static long submit(aio_context_t c, long n, struct iocb **l) { return syscall(SYS_io_submit, c, n, l); }
static long cancel(aio_context_t c, struct iocb *r) { return syscall(SYS_io_cancel, c, r, NULL); }
static long get(aio_context_t c, long min, long n, struct io_event *e, struct timespec *t)
{
	return syscall(SYS_io_getevents, c, min, n, e, t);
}
struct sig {
	const sigset_t *set;
	size_t size;
};
static long pget(aio_context_t c, long min, long n, struct io_event *e, struct timespec *t, struct sig *s)
{
	return syscall(SYS_io_pgetevents, c, min, n, e, t, s);
}
static struct timespec now_;

static aio_context_t context(unsigned n)
{
	aio_context_t c = 0;
	if (setup(n, &c))
		say("setup", "failed: %s", strerrorname_np(errno));
	return c;
}

static struct iocb request(int op, int fd, const void *buf, size_t n, long off)
{
	struct iocb r = { 0 };
	r.aio_lio_opcode = op, r.aio_fildes = fd, r.aio_buf = (uintptr_t)buf, r.aio_nbytes = n, r.aio_offset = off;
	return r;
}

static long one(aio_context_t c, struct iocb *r) { return submit(c, 1, &r); }

/* Submits one and gives its result; -9999 and the errno if it did not begin. */
static long done(aio_context_t c, struct iocb r)
{
	struct io_event e = { 0 };
	if (one(c, &r) != 1)
		return -9999000 - errno;
	if (get(c, 1, 1, &e, NULL) != 1)
		return -9998;
	return e.obj == (uintptr_t)&r ? e.res : -9997;
}

static void contexts(void)
{
	aio_context_t c = 0, d = 0;
	T(setup(0, &c));
	T(setup(4, NULL));
	c = 7;
	T(setup(4, &c));
	c = 0;
	T(setup(-1u, &c));
	T(setup(0x4000001, &c));
	T(setup(100000000, &c));
	T(setup(4, &c));
	struct ring *r = (void *)c;
	T(r->id);
	Y(r->nr >= 2 * 4);
	T(r->nr % 128);
	T(r->head);
	T(r->tail);
	Y(r->magic == 0xa10a10a1);
	T(r->compat);
	T(r->incompat);
	T(r->header);
	T(setup(1000, &d));
	r = (void *)d;
	T(r->id);
	T(r->nr);
	T(destroy(c));
	T(destroy(c));
	T(destroy(0));
	T(destroy(8));
	T(destroy(d + 4096));
	c = 0;
	T(setup(1, &c));
	T(((struct ring *)c)->id);
	((struct ring *)c)->id = 1;
	T(destroy(c));
	((struct ring *)c)->id = 12345678;
	T(destroy(c));
	((struct ring *)c)->id = 0;
	T(destroy(c));
	T(get(d, 0, 1, NULL, &now_));
	munmap((void *)d, 4096);
	T(get(d, 0, 1, NULL, &now_));
	struct { aio_context_t *p; } ro = { mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) };
	T(setup(4, ro.p));
}

static void files(void)
{
	aio_context_t c = context(8);
	int f = open("f", O_CREAT | O_RDWR, 0644), ro = open("f", O_RDONLY), wo = open("f", O_WRONLY), ap = open("f", O_RDWR | O_APPEND);
	char b[64] = { 0 };
	T(done(c, request(IOCB_CMD_PWRITE, f, "hello world", 11, 0)));
	T(done(c, request(IOCB_CMD_PREAD, f, b, 5, 6)));
	S(b, 5);
	T(lseek(f, 0, SEEK_CUR));
	T(done(c, request(IOCB_CMD_PREAD, f, b, 5, 100)));
	T(done(c, request(IOCB_CMD_PREAD, f, b, 0, 0)));
	T(done(c, request(IOCB_CMD_PWRITE, f, b, 0, 0)));
	T(done(c, request(IOCB_CMD_PREAD, f, b, 5, -1)));
	T(done(c, request(IOCB_CMD_PREAD, f, (void *)8, 5, 0)));
	T(done(c, request(IOCB_CMD_PREAD, f, (void *)-8, 5, 0)));
	T(done(c, request(IOCB_CMD_PREAD, f, b, -1, 0)));
	T(done(c, request(IOCB_CMD_PWRITE, f, (void *)8, 5, 0)));
	T(done(c, request(IOCB_CMD_PREAD, wo, b, 5, 0)));
	T(done(c, request(IOCB_CMD_PWRITE, ro, b, 5, 0)));
	T(done(c, request(IOCB_CMD_PREAD, -1, b, 5, 0)));
	T(done(c, request(IOCB_CMD_PREAD, open("f", O_PATH), b, 5, 0)));
	T(done(c, request(IOCB_CMD_PREAD, open(".", O_RDONLY), b, 5, 0)));
	T(done(c, request(6, f, b, 5, 0)));
	T(done(c, request(4, f, b, 5, 0)));
	T(done(c, request(9, f, b, 5, 0)));
	T(done(c, request(IOCB_CMD_PWRITE, ap, "!", 1, 0)));
	T(done(c, request(IOCB_CMD_PREAD, f, b, 64, 0)));
	S(b, 12);
	struct iovec v[2] = { { b, 3 }, { b + 32, 4 } };
	T(done(c, request(IOCB_CMD_PREADV, f, v, 2, 0)));
	S(b, 3);
	S(b + 32, 4);
	T(done(c, request(IOCB_CMD_PWRITEV, f, v, 2, 20)));
	T(done(c, request(IOCB_CMD_PREADV, f, v, 1025, 0)));
	T(done(c, request(IOCB_CMD_PREADV, f, (void *)8, 2, 0)));
	T(done(c, request(IOCB_CMD_PREADV, f, v, 0, 0)));
	v[0].iov_len = -1;
	T(done(c, request(IOCB_CMD_PREADV, f, v, 2, 0)));
	T(done(c, request(IOCB_CMD_FSYNC, f, NULL, 0, 0)));
	T(done(c, request(IOCB_CMD_FDSYNC, ro, NULL, 0, 0)));
	T(done(c, request(IOCB_CMD_FSYNC, f, b, 0, 0)));
	T(done(c, request(IOCB_CMD_FSYNC, f, NULL, 1, 0)));
	T(done(c, request(IOCB_CMD_FSYNC, f, NULL, 0, 1)));
	struct stat s;
	fstat(f, &s);
	T(s.st_size);
	struct rlimit l = { 10, 10 };
	signal(SIGXFSZ, SIG_IGN);
	T(CHILD(aio_context_t d = context(4); setrlimit(RLIMIT_FSIZE, &l);
		_exit(done(d, request(IOCB_CMD_PWRITE, f, "abcdef", 6, 6)))));
	T(CHILD(aio_context_t d = context(4); setrlimit(RLIMIT_FSIZE, &l);
		_exit(-done(d, request(IOCB_CMD_PWRITE, f, "abcdef", 6, 16)))));
}

static void words(void)
{
	aio_context_t c = context(8);
	int f = open("f", O_CREAT | O_RDWR, 0644);
	char b[16];
	struct iocb r = request(IOCB_CMD_PWRITE, f, "hello", 5, 0);
	r.aio_reserved2 = 1;
	T(done(c, r));
	r.aio_reserved2 = 0, r.aio_rw_flags = 1 << 20;
	T(done(c, r));
	r.aio_rw_flags = 2;
	T(done(c, r));
	r.aio_rw_flags = 4;
	T(done(c, r));
	r.aio_rw_flags = 16, r.aio_offset = 0;
	T(done(c, r));
	struct stat s;
	fstat(f, &s);
	T(s.st_size);
	r = request(IOCB_CMD_FSYNC, f, NULL, 0, 0);
	r.aio_rw_flags = 1;
	T(done(c, r));
	r = request(IOCB_CMD_PREAD, f, b, 5, 0);
	r.aio_flags = 0x100;
	T(done(c, r));
	r.aio_flags = 2, r.aio_reqprio = 2 << 13 | 3;
	T(done(c, r));
	r.aio_reqprio = 3 << 13;
	T(done(c, r));
	r.aio_reqprio = 5 << 13;
	T(done(c, r));
	r.aio_reqprio = 1;
	T(done(c, r));
	drop_root();
	r.aio_reqprio = 1 << 13;
	T(done(c, r));
	r.aio_flags = 0, r.aio_key = 77, r.aio_data = 0x123456789abcull;
	struct io_event e = { 0 };
	T(one(c, &r));
	T(r.aio_key);
	T(get(c, 1, 1, &e, NULL));
	T(e.data);
	Y(e.obj == (uintptr_t)&r);
	T(e.res);
	T(e.res2);
}

static void submitting(void)
{
	aio_context_t c = context(4);
	int f = open("f", O_CREAT | O_RDWR, 0644);
	char b[16];
	struct iocb good = request(IOCB_CMD_PWRITE, f, "x", 1, 0), bad = request(IOCB_CMD_PWRITE, -1, "x", 1, 0);
	struct iocb *l[] = { &good, &good, &bad, &good, (void *)8 };
	struct io_event e[256];
	T(submit(c, 0, l));
	T(submit(c, -1, l));
	T(submit(c, 4, l));
	T(get(c, 0, 256, e, &now_));
	T(submit(c, 1, l + 2));
	T(submit(c, 2, l + 3));
	T(submit(c, 1, l + 4));
	T(submit(c, 1, NULL));
	T(submit(c, 0, NULL));
	T(submit(0, 1, l));
	T(submit(c + 1, 1, l));
	T(get(c, 0, 256, e, &now_));
	/* More than the ring holds: what is not taken makes no room. */
	int n = 0;
	while (n < 1000 && one(c, &good) == 1)
		n++;
	T(one(c, &good));
	Y(n >= 4 && n < 128);
	T(get(c, 0, 2, e, &now_));
	int again = 0;
	while (again < 1000 && one(c, &good) == 1)
		again++;
	T(again);
	Y(get(c, 0, 256, e, &now_) == n);
	/* The application takes events itself. */
	struct ring *r = (void *)c;
	n = 0;
	while (n < 1000) {
		if (one(c, &good) != 1)
			break;
		r->head = r->tail;
		n++;
	}
	T(n);
	T(get(c, 0, 256, e, &now_));
	r->head = 0xffffffff;
	r->tail = 0xfffffff0;
	Y(get(c, 0, 256, e, &now_) < 256);
	one(c, &good);
	Y(get(c, 0, 256, e, &now_) < 256);
	r->nr = 0;
	T(one(c, &good));
	T(get(c, 1, 1, e, NULL));
	struct iocb *ro = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	*ro = good;
	mprotect(ro, 4096, PROT_READ);
	T(one(c, ro));
}

static void waiting(void)
{
	aio_context_t c = context(4);
	int p[2];
	pipe(p);
	struct io_event e[8];
	struct timespec t = { 0, 30000000 }, neg = { -1, 0 }, big = { 0, 2000000000 }, huge = { 1L << 62, 0 };
	long long s = now_ms();
	T(get(c, 1, 8, e, &t));
	Y(now_ms() - s >= 30);
	T(CHILD(aio_context_t d = context(1); alarm(1); get(d, 1, 8, e, &neg)));
	T(get(c, 1, 8, e, &now_));
	T(get(c, 0, 8, e, NULL));
	T(get(c, 2, 1, e, &now_));
	T(get(c, -1, 1, e, &now_));
	T(get(c, 0, 0, e, &now_));
	T(get(c, 0, -1, e, &now_));
	T(get(c, 0, 1, e, (void *)8));
	T(get(0, 0, 1, e, &now_));
	T(get(0, 0, 1, e, (void *)8));
	int f = open("f", O_CREAT | O_RDWR, 0644);
	struct iocb r = request(IOCB_CMD_PWRITE, f, "x", 1, 0), *l[] = { &r, &r, &r };
	T(submit(c, 3, l));
	T(get(c, 1, 2, (void *)8, &now_));
	T(get(c, 1, 2, e, NULL));
	T(get(c, 1, 8, e, &huge));
	T(submit(c, 1, l));
	s = now_ms();
	T(get(c, 2, 8, e, &t));
	Y(now_ms() - s >= 30);
	struct iocb w = request(IOCB_CMD_POLL, p[0], NULL, 0, 0);
	w.aio_buf = POLLIN;
	T(one(c, &w));
	pid_t k = fork();
	if (!k) {
		ms(30);
		write(p[1], "x", 1);
		_exit(0);
	}
	T(get(c, 1, 8, e, &big));
	T(e[0].res & POLLIN);
	waitpid(k, NULL, 0);
}

static volatile int got;
static void on(int s) { got = s; }

static void signals(void)
{
	aio_context_t c = context(4);
	struct io_event e[8];
	struct sigaction a = { .sa_handler = on, .sa_flags = SA_RESTART };
	struct timespec t = { 5, 0 };
	sigaction(SIGALRM, &a, NULL);
	sigaction(SIGUSR1, &a, NULL);
	struct itimerval it = { { 0, 0 }, { 0, 30000 } };
	setitimer(ITIMER_REAL, &it, NULL);
	T(get(c, 1, 8, e, NULL));
	T(got);
	setitimer(ITIMER_REAL, &it, NULL);
	T(pget(c, 1, 8, e, &t, NULL));
	sigset_t block, none;
	sigemptyset(&none);
	sigemptyset(&block);
	sigaddset(&block, SIGUSR1);
	sigprocmask(SIG_BLOCK, &block, NULL);
	raise(SIGUSR1);
	got = 0;
	struct sig s = { &none, 8 };
	T(get(c, 0, 8, e, &now_));
	T(got);
	T(pget(c, 1, 8, e, NULL, &s));
	T(got);
	sigprocmask(SIG_SETMASK, NULL, &none);
	T(sigismember(&none, SIGUSR1));
	sigemptyset(&none);
	/* Events win; the handler runs all the same. */
	int f = open("f", O_CREAT | O_RDWR, 0644);
	struct iocb r = request(IOCB_CMD_PWRITE, f, "x", 1, 0);
	one(c, &r);
	got = 0;
	raise(SIGUSR1);
	T(pget(c, 1, 8, e, NULL, &s));
	T(got);
	got = 0;
	raise(SIGUSR1);
	T(pget(c, 0, 8, e, &now_, &s));
	T(got);
	s.size = 4;
	T(pget(c, 0, 8, e, &now_, &s));
	T(pget(c, 0, 8, e, &now_, (void *)8));
	s.set = NULL;
	T(pget(c, 0, 8, e, &now_, &s));
	s.set = (void *)8, s.size = 8;
	T(pget(c, 0, 8, e, &now_, &s));
	T(pget(0, 0, 8, e, &now_, NULL));
}

static void polls(void)
{
	aio_context_t c = context(8);
	struct io_event e[8];
	int p[2], sv[2], ev = eventfd(0, EFD_NONBLOCK);
	uint64_t v = 1;
	pipe(p);
	struct iocb r = request(IOCB_CMD_POLL, p[0], NULL, 0, 0), w = request(IOCB_CMD_POLL, p[1], NULL, 0, 0);
	r.aio_buf = POLLIN, w.aio_buf = POLLOUT;
	T(one(c, &r));
	T(get(c, 0, 8, e, &now_));
	T(one(c, &w));
	T(get(c, 1, 8, e, NULL));
	T(e[0].res);
	write(p[1], "x", 1);
	T(get(c, 1, 8, e, NULL));
	T(e[0].res);
	T(one(c, &r));
	T(get(c, 1, 8, e, NULL));
	T(e[0].res);
	T(get(c, 0, 8, e, &now_));
	char b[8];
	read(p[0], b, 8);
	T(one(c, &r));
	close(p[1]);
	T(get(c, 1, 8, e, NULL));
	T(e[0].res);
	r.aio_fildes = ev;
	T(one(c, &r));
	write(ev, &v, 8);
	T(get(c, 1, 8, e, NULL));
	T(e[0].res);
	read(ev, &v, 8);
	T(one(c, &r));
	T(cancel(c, &r));
	T(get(c, 1, 8, e, NULL));
	T(e[0].res);
	T(cancel(c, &r));
	T(cancel(0, &r));
	T(cancel(c, (void *)8));
	r.aio_key = 5;
	T(cancel(c, &r));
	r.aio_nbytes = 1;
	T(one(c, &r));
	r.aio_nbytes = 0, r.aio_offset = 1;
	T(one(c, &r));
	r.aio_offset = 0, r.aio_rw_flags = 1;
	T(one(c, &r));
	r.aio_rw_flags = 0, r.aio_buf = 0x10001;
	T(one(c, &r));
	int f = open("f", O_CREAT | O_RDWR, 0644);
	r.aio_buf = POLLIN, r.aio_fildes = f;
	T(one(c, &r));
	T(get(c, 1, 8, e, NULL));
	T(e[0].res);
	r.aio_buf = POLLPRI;
	T(one(c, &r));
	socketpair(AF_UNIX, SOCK_STREAM, 0, sv);
	r.aio_fildes = sv[0], r.aio_buf = POLLIN;
	T(one(c, &r));
	/* The request keeps its file. */
	close(sv[0]);
	write(sv[1], "x", 1);
	T(get(c, 1, 8, e, NULL));
	T(e[0].res & POLLIN);
	/* Not what was asked for. */
	pipe(p);
	r.aio_fildes = p[1], r.aio_buf = 0;
	T(one(c, &r));
	T(get(c, 0, 8, e, &now_));
	close(p[0]);
	T(get(c, 1, 8, e, NULL));
	T(e[0].res & POLLERR);
	/* Many at one file, and twice the same request. */
	pipe(p);
	r.aio_fildes = p[0], r.aio_buf = POLLIN;
	for (int i = 0; i < 4; i++)
		one(c, &r);
	write(p[1], "x", 1);
	T(get(c, 4, 8, e, NULL));
}

static void eventfds(void)
{
	aio_context_t c = context(8);
	struct io_event e[8];
	int f = open("f", O_CREAT | O_RDWR, 0644), ev = eventfd(0, EFD_NONBLOCK), p[2];
	uint64_t v = 0;
	struct iocb r = request(IOCB_CMD_PWRITE, f, "x", 1, 0), *l[] = { &r, &r };
	r.aio_flags = IOCB_FLAG_RESFD, r.aio_resfd = ev;
	T(submit(c, 2, l));
	T(read(ev, &v, 8));
	T(v);
	r.aio_resfd = f;
	T(one(c, &r));
	r.aio_resfd = 99;
	T(one(c, &r));
	T(get(c, 0, 8, e, &now_));
	/* What fails in its event is told, what does not begin is not. */
	r.aio_resfd = ev, r.aio_buf = 8;
	T(one(c, &r));
	T(read(ev, &v, 8));
	r.aio_lio_opcode = 99;
	T(one(c, &r));
	T(read(ev, &v, 8));
	T(get(c, 0, 8, e, &now_));
	pipe(p);
	struct iocb w = request(IOCB_CMD_POLL, p[0], NULL, 0, 0);
	w.aio_buf = POLLIN, w.aio_flags = IOCB_FLAG_RESFD, w.aio_resfd = ev;
	T(one(c, &w));
	T(read(ev, &v, 8));
	struct pollfd pf = { ev, POLLIN };
	if (!fork()) {
		ms(20);
		write(p[1], "x", 1);
		_exit(0);
	}
	T(poll(&pf, 1, 5000));
	T(read(ev, &v, 8));
	T(v);
	T(get(c, 1, 8, e, NULL));
	/* The eventfd that is polled is told of it. */
	w.aio_fildes = ev;
	T(one(c, &w));
	v = 1;
	write(ev, &v, 8);
	T(get(c, 1, 8, e, NULL));
	T(read(ev, &v, 8));
	T(v);
	/* A context's end tells it. */
	w.aio_fildes = p[0];
	char b;
	read(p[0], &b, 1);
	T(one(c, &w));
	T(destroy(c));
	T(poll(&pf, 1, 5000));
	T(read(ev, &v, 8));
}

static void streams(void)
{
	aio_context_t c = context(8);
	int p[2], ev = eventfd(3, EFD_NONBLOCK), in = inotify_init1(IN_NONBLOCK), ep = epoll_create1(0);
	char b[64] = { 0 };
	uint64_t v = 0;
	pipe2(p, O_NONBLOCK);
	T(done(c, request(IOCB_CMD_PREAD, p[0], b, 8, 0)));
	T(done(c, request(IOCB_CMD_PWRITE, p[1], "abc", 3, 0)));
	T(done(c, request(IOCB_CMD_PREAD, p[0], b, 8, 77)));
	S(b, 3);
	T(done(c, request(IOCB_CMD_PREAD, p[0], b, 8, -1)));
	T(done(c, request(IOCB_CMD_PREAD, p[1], b, 8, 0)));
	T(done(c, request(IOCB_CMD_FSYNC, p[0], NULL, 0, 0)));
	T(done(c, request(IOCB_CMD_PREAD, ev, &v, 8, 0)));
	T(v);
	T(done(c, request(IOCB_CMD_PREAD, ev, &v, 8, 0)));
	T(done(c, request(IOCB_CMD_PREAD, in, b, 64, 0)));
	T(done(c, request(IOCB_CMD_PREAD, ep, b, 64, 0)));
	T(done(c, request(IOCB_CMD_PREAD, open("/dev/zero", O_RDONLY), b, 64, 0)));
	T(done(c, request(IOCB_CMD_PWRITE, open("/dev/null", O_WRONLY), b, 64, 0)));
	int sv[2];
	socketpair(AF_UNIX, SOCK_STREAM, 0, sv);
	T(done(c, request(IOCB_CMD_PWRITE, sv[0], "hi", 2, 0)));
	T(done(c, request(IOCB_CMD_PREAD, sv[1], b, 8, 0)));
	/* Blocks in io_submit. */
	fcntl(p[0], F_SETFL, 0);
	pid_t k = fork();
	if (!k) {
		ms(30);
		write(p[1], "late", 4);
		_exit(0);
	}
	struct iocb r = request(IOCB_CMD_PREAD, p[0], b, 8, 0);
	long long s = now_ms();
	T(one(c, &r));
	Y(now_ms() - s >= 25);
	struct io_event e;
	T(get(c, 1, 1, &e, &now_));
	T(e.res);
	waitpid(k, NULL, 0);
	/* A signal ends it, in its event. */
	struct sigaction a = { .sa_handler = on, .sa_flags = SA_RESTART };
	sigaction(SIGALRM, &a, NULL);
	struct itimerval it = { { 0, 0 }, { 0, 30000 } };
	setitimer(ITIMER_REAL, &it, NULL);
	T(one(c, &r));
	T(get(c, 1, 1, &e, &now_));
	T(e.res);
	signal(SIGPIPE, on);
	got = 0;
	close(p[0]);
	T(done(c, request(IOCB_CMD_PWRITE, p[1], "abc", 3, 0)));
	T(got);
}

static int maps_has(const char *what)
{
	char b[65536];
	int f = open("/proc/self/maps", O_RDONLY), n = 0, k;
	while ((k = read(f, b + n, sizeof b - 1 - n)) > 0)
		n += k;
	b[n] = 0;
	close(f);
	char *at = strstr(b, what);
	if (!at)
		return 0;
	while (at > b && at[-1] != '\n')
		at--;
	return !strncmp(strchr(at, ' '), " rw-s", 5) ? 2 : 1;
}

static void mapping(void)
{
	aio_context_t c = context(4), d = c;
	struct ring *r = (void *)c;
	struct io_event e[8];
	T(maps_has("/[aio] (deleted)"));
	int f = open("f", O_CREAT | O_RDWR, 0644);
	struct iocb q = request(IOCB_CMD_PWRITE, f, "x", 1, 0);
	one(c, &q);
	T(CHILD(_exit(r->tail)));
	T(CHILD(r->incompat = 9; _exit(0)));
	T(r->incompat);
	T(CHILD(_exit(get(c, 0, 1, e, &now_) == -1 && errno == EINVAL)));
	T(CHILD(aio_context_t n = 0; _exit(setup(1, &n) == 0 && ((struct ring *)n)->id == 0 && destroy(n) == 0)));
	T(mremap(r, 4096, 8192, MREMAP_MAYMOVE));
	T(mremap(r, 4096, 4096, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL));
	T(mremap(r, 0, 4096, MREMAP_MAYMOVE));
	T(mprotect(r, 4096, PROT_READ | PROT_EXEC));
	T(madvise(r, 4096, MADV_DONTFORK));
	T(madvise(r, 4096, MADV_DOFORK));
	void *to = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	Y(mremap(r, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	c = (uintptr_t)to;
	T(get(d, 0, 8, e, &now_));
	T(get(c, 0, 8, e, &now_));
	one(c, &q);
	T(get(c, 0, 8, e, &now_));
	T(mprotect(to, 4096, PROT_READ));
	one(c, &q);
	T(get(c, 0, 8, e, &now_));
	T(destroy(c));
	T(maps_has("/[aio] (deleted)"));
	T(msync(to, 4096, MS_SYNC));
}

static int number(const char *path)
{
	char b[32] = { 0 };
	int f = open(path, O_RDONLY);
	read(f, b, 31);
	close(f);
	return atoi(b);
}

static void limits(void)
{
	/* On Linux all users share it, and others may have some. */
	int before = number("/proc/sys/fs/aio-nr");
	aio_context_t c = context(100), d = 0;
	T(number("/proc/sys/fs/aio-nr") - before);
	T(number("/proc/sys/fs/aio-max-nr"));
	T(setup(65536, &d));
	T(setup(65537, &d));
	T(destroy(c));
	T(number("/proc/sys/fs/aio-nr") - before);
	struct stat s;
	stat("/proc/sys/fs/aio-nr", &s);
	T(s.st_mode);
	stat("/proc/sys/fs/aio-max-nr", &s);
	T(s.st_mode);
	/* A process's end gives all back. */
	T(CHILD(context(1000); context(1000)));
	T(number("/proc/sys/fs/aio-nr") - before);
}

static aio_context_t shared;
static void *waits(void *p)
{
	struct io_event e;
	long r = get(shared, 1, 1, &e, NULL);
	*(int *)p = r == -1 ? errno : r;
	return NULL;
}
static int blocked_pipe[2];
static volatile int blocked_done;
static void *blocks(void *p)
{
	char b[8];
	struct iocb r = request(IOCB_CMD_PREAD, blocked_pipe[0], b, 8, 0);
	*(int *)p = one(shared, &r);
	blocked_done = 1;
	return NULL;
}
static void *writes(void *p)
{
	ms(60);
	write(blocked_pipe[1], "x", 1);
	return NULL;
}

static void threads(void)
{
	pthread_t t, u;
	int r = 0, q = 0;
	shared = context(4);
	pthread_create(&t, NULL, waits, &r);
	ms(30);
	T(destroy(shared));
	pthread_join(t, NULL);
	T(r);
	/* The end waits for what is under way. */
	shared = context(4);
	pipe(blocked_pipe);
	pthread_create(&t, NULL, blocks, &q);
	ms(30);
	pthread_create(&u, NULL, writes, NULL);
	T(destroy(shared));
	ms(20);
	T(blocked_done);
	pthread_join(t, NULL);
	T(q);
	/* Another process cannot be in the way; a process's end with requests under way. */
	T(CHILD({
		aio_context_t c = context(4);
		int p[2];
		pipe(p);
		struct iocb w = request(IOCB_CMD_POLL, p[0], NULL, 0, 0);
		w.aio_buf = POLLIN;
		one(c, &w);
	}));
	/* A file keeps open what a polling request has; the process's end lets it go. */
	int p[2];
	pipe(p);
	T(CHILD({
		aio_context_t c = context(4);
		struct iocb w = request(IOCB_CMD_POLL, p[1], NULL, 0, 0);
		w.aio_buf = POLLERR;
		one(c, &w);
		close(p[1]);
	}));
	close(p[1]);
	char b;
	T(read(p[0], &b, 1));
	/* So does another program. */
	pipe(p);
	fcntl(p[0], F_SETFD, FD_CLOEXEC);
	pid_t k = fork();
	if (!k) {
		aio_context_t c = context(4);
		struct iocb w = request(IOCB_CMD_POLL, p[1], NULL, 0, 0);
		w.aio_buf = POLLERR;
		one(c, &w);
		fcntl(p[1], F_SETFD, FD_CLOEXEC);
		execl("/bin/sleep", "sleep", "3", NULL);
		_exit(9);
	}
	close(p[1]);
	struct pollfd pf = { p[0], POLLIN };
	T(poll(&pf, 1, 2000));
	T(pf.revents);
	kill(k, SIGKILL);
	waitpid(k, NULL, 0);
}

static const struct check list[] = {
	CHECK(contexts),
	CHECK(files),
	CHECK(words),
	CHECK(submitting),
	CHECK(waiting),
	CHECK(signals),
	CHECK(polls),
	CHECK(eventfds),
	CHECK(streams),
	CHECK(mapping),
	CHECK(limits),
	CHECK(threads),
};
MAIN(list)
