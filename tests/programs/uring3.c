/* io_uring: what two readings of it found, compared with Linux. */
#define AREA "uring3"
#include "check.h"
#include "uring.h"
#include <sys/inotify.h>

/* What is received with provided buffers: MSG_WAITALL stays in one, the end takes none. */
static void receives(void)
{
	struct ring *r = ring_(8, 0);
	static char all[4][8];
	struct io_uring_sqe *e;
	int s[2];
	T(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	T(one_(r, sqe_(r, IORING_OP_PROVIDE_BUFFERS, 2, all, 8, 0)));
	e = sqe_(r, IORING_OP_RECV, s[0], NULL, 8, 0);
	e->flags = IOSQE_BUFFER_SELECT, e->msg_flags = MSG_WAITALL, e->user_data = 1;
	T(submit_(r, 0));
	T(send(s[1], "1234", 4, 0));
	usleep(20000);
	T(*r->cq_tail - *r->cq_head);
	T(send(s[1], "5678", 4, 0));
	show_(r, 1);
	S(all[0], 8);
	S(all[1], 8);
	shutdown(s[1], SHUT_WR);
	e = sqe_(r, IORING_OP_RECV, s[0], NULL, 8, 0), e->flags = IOSQE_BUFFER_SELECT, e->user_data = 2;
	T(submit_(r, 1));
	show_(r, 1);
	/* One is left. */
	T(one_(r, sqe_(r, IORING_OP_REMOVE_BUFFERS, 5, NULL, 0, 0)));
}

/* Which failures break a link. */
static void links(void)
{
	struct ring *r = ring_(8, 0);
	int p[2], q[2], f = open("/dev/null", O_RDONLY);
	T(pipe(p));
	T(pipe(q));
	struct { int op, fd; const void *addr; unsigned len; unsigned long long off; } all[] = {
		{ IORING_OP_FSYNC, p[0], 0, 0, 0 },
		{ IORING_OP_FSYNC, 999, 0, 0, 0 },
		{ IORING_OP_FALLOCATE, f, 0, 0, 0 },
		{ IORING_OP_UNLINKAT, AT_FDCWD, "/nowhere/x", 0, 0 },
		{ IORING_OP_MKDIRAT, AT_FDCWD, "/nowhere/x", 0755, 0 },
		{ IORING_OP_SHUTDOWN, p[0], 0, 0, 0 },
		{ IORING_OP_READ, 999, all, 1, 0 },
		{ IORING_OP_OPENAT, AT_FDCWD, "/nowhere/x", 0, 0 },
		{ IORING_OP_CLOSE, 999, 0, 0, 0 },
	};
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
		struct io_uring_sqe *e = sqe_(r, all[i].op, all[i].fd, all[i].addr, all[i].len, all[i].off);
		e->flags = IOSQE_IO_LINK, e->user_data = 10 * i;
		sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0)->user_data = 10 * i + 1;
		T(submit_(r, 2));
		sorted_(r, 2);
	}
	T(write(p[1], "short", 5));
	struct io_uring_sqe *e = sqe_(r, IORING_OP_SPLICE, q[1], NULL, 100, -1ULL);
	e->splice_off_in = -1ULL, e->splice_fd_in = p[0], e->flags = IOSQE_IO_LINK, e->user_data = 100;
	sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0)->user_data = 101;
	T(submit_(r, 2));
	sorted_(r, 2);
}

/* Polls: the other side's end, and files that are always ready. */
static void polls(void)
{
	struct ring *r = ring_(8, 0);
	struct io_uring_sqe *e;
	int s[2], f = open("/proc/self/exe", O_RDONLY);
	T(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	shutdown(s[1], SHUT_WR);
	e = sqe_(r, IORING_OP_POLL_ADD, s[0], NULL, 0, 0), e->poll32_events = POLLIN, e->user_data = 1;
	T(submit_(r, 1));
	show_(r, 1);
	e = sqe_(r, IORING_OP_POLL_ADD, f, NULL, IORING_POLL_ADD_MULTI, 0), e->poll32_events = POLLIN, e->user_data = 2;
	T(submit_(r, 1));
	show_(r, 1);
	/* Nothing is left that a drain would wait for. */
	e = sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0), e->flags = IOSQE_IO_DRAIN, e->user_data = 3;
	T(submit_(r, 1));
	show_(r, 1);
	/* What was opened with O_NONBLOCK is waited for. */
	int i = inotify_init1(IN_NONBLOCK);
	char b[4096];
	sqe_(r, IORING_OP_READ, i, b, sizeof b, -1ULL)->user_data = 4;
	T(submit_(r, 0));
	usleep(20000);
	T(*r->cq_tail - *r->cq_head);
	T(inotify_add_watch(i, ".", IN_CREATE) > 0);
	close(open("made", O_CREAT | O_RDWR, 0644));
	struct io_uring_cqe c;
	Y(take_(r, &c) && c.res > 0);
	unlink("made");
}

/* What is linked behind a timeout is the old program's: it does not run in the new one. */
static void fork_exec(struct ring *r, const char *to)
{
	struct __kernel_timespec t = { 0, 50 * 1000000 };
	pid_t pid = fork();
	if (!pid) {
		struct io_uring_sqe *e = sqe_(r, IORING_OP_TIMEOUT, -1, &t, 1, 0);
		e->timeout_flags = IORING_TIMEOUT_ETIME_SUCCESS, e->flags = IOSQE_IO_LINK;
		sqe_(r, IORING_OP_MKDIRAT, AT_FDCWD, to, 0755, 0);
		submit_(r, 0);
		execl("/bin/sleep", "sleep", "0.3", NULL);
		_exit(1);
	}
	int status;
	waitpid(pid, &status, 0);
	T(status);
}

static void programs(void)
{
	struct ring *r = ring_(8, 0);
	struct stat s;
	fcntl(r->fd, F_SETFD, 0);
	fork_exec(r, "behind");
	T(stat("behind", &s));
	sorted_(r, 2);
}

static const struct check list[] = {
	CHECK(receives),
	CHECK(links),
	CHECK(polls),
	CHECK(programs),
};
MAIN(list)
