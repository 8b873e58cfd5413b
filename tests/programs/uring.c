/* io_uring: rings, requests, what holds them together. Raw system calls, no library. */
#define AREA "uring"
#include "check.h"
#include "uring.h"

static void setup(void)
{
	struct io_uring_params p = { 0 };
	T(setup_(0, &p));
	T(setup_(8, NULL));
	T(setup_(32769, &p));
	p.flags = 1u << 31;
	T(setup_(8, &p));
	p = (struct io_uring_params){ .resv = { 1 } };
	T(setup_(8, &p));
	p = (struct io_uring_params){ .flags = IORING_SETUP_CQSIZE, .cq_entries = 4 };
	T(setup_(8, &p));
	p.cq_entries = 0;
	T(setup_(8, &p));
	p = (struct io_uring_params){ .flags = IORING_SETUP_SQ_AFF };
	T(setup_(8, &p));
	p.flags = IORING_SETUP_TASKRUN_FLAG;
	T(setup_(8, &p));
	p.flags = IORING_SETUP_DEFER_TASKRUN;
	T(setup_(8, &p));
	p.flags = IORING_SETUP_CLAMP;
	int fd = setup_(1 << 20, &p);
	T(p.sq_entries);
	T(p.cq_entries);
	close(fd);
	p = (struct io_uring_params){ 0 };
	fd = setup_(5, &p);
	T(p.sq_entries);
	T(p.cq_entries);
	T(p.features & 0x1fff);
	T(p.sq_off.head); T(p.sq_off.tail); T(p.sq_off.ring_mask); T(p.sq_off.ring_entries);
	T(p.sq_off.flags); T(p.sq_off.dropped); T(p.sq_off.array);
	T(p.cq_off.head); T(p.cq_off.tail); T(p.cq_off.ring_mask); T(p.cq_off.ring_entries);
	T(p.cq_off.overflow); T(p.cq_off.cqes); T(p.cq_off.flags);
	T(fcntl(fd, F_GETFD));
	T(fcntl(fd, F_GETFL) & O_ACCMODE);
	char link[64] = { 0 }, path[64];
	sprintf(path, "/proc/self/fd/%d", fd);
	T(readlink(path, link, sizeof link));
	S(link, strlen(link));
	T((long)mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0x20000000));
	T((long)mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0x80000000));
	Y(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, IORING_OFF_CQ_RING) != MAP_FAILED);
	T(enter_(fd, 0, 0, 1 << 20, NULL, 0));
	T(enter_(0, 0, 0, 0, NULL, 0));
	T(enter_(99, 0, 0, 0, NULL, 0));
	T(read(fd, link, 8));
	struct pollfd pf = { .fd = fd, .events = POLLIN | POLLOUT };
	T(poll(&pf, 1, 0));
	T(pf.revents);
}

static void nops(void)
{
	struct ring *r = ring_(8, 0);
	for (int i = 0; i < 4; i++)
		sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0)->user_data = i + 1;
	T(submit_(r, 4));
	show_(r, 4);
	T(enter_(r->fd, 0, 0, IORING_ENTER_GETEVENTS, NULL, 0));
	struct io_uring_sqe *e = sqe_(r, 200, -1, NULL, 0, 0);
	T(submit_(r, 0));
	show_(r, 1);
	e = sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0);
	e->flags = 0x80;
	T(submit_(r, 0));
	show_(r, 1);
	e = sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0);
	e->flags = IOSQE_BUFFER_SELECT;
	T(submit_(r, 0));
	show_(r, 1);
	e = sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0);
	e->personality = 7;
	T(submit_(r, 0));
	show_(r, 1);
	/* The rest stays where an entry is no good. */
	sqe_(r, 200, -1, NULL, 0, 0);
	sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0);
	T(submit_(r, 0));
	show_(r, 1);
	T(submit_(r, 0));
	show_(r, 1);
	/* An index that is none. */
	sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0);
	r->array[(*r->sq_tail - 1) & r->sq_mask] = 1000;
	T(submit_(r, 0));
	T(*r->sq_dropped);
	r->array[(*r->sq_tail - 1) & r->sq_mask] = (*r->sq_tail - 1) & r->sq_mask;
	r = ring_(8, IORING_SETUP_SUBMIT_ALL);
	sqe_(r, 200, -1, NULL, 0, 0);
	sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0);
	T(submit_(r, 0));
	show_(r, 2);
	r = ring_(8, IORING_SETUP_NO_SQARRAY | IORING_SETUP_CQE32 | IORING_SETUP_SQE128);
	sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0);
	sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0);
	T(submit_(r, 2));
	show_(r, 2);
}

static void overflow(void)
{
	struct ring *r = ring_(4, 0);
	for (int n = 0; n < 3; n++) {
		for (int i = 0; i < 4; i++)
			sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0)->user_data = n * 4 + i + 1;
		T(submit_(r, 0));
	}
	T(*r->sq_flags);
	T(*r->cq_tail - *r->cq_head);
	show_(r, 8);
	T(enter_(r->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0));
	T(*r->sq_flags);
	show_(r, 4);
	T(*r->cq_overflow);
}

static void files(void)
{
	struct ring *r = ring_(8, 0);
	int f = open("f", O_CREAT | O_RDWR, 0644), ro = open("f", O_RDONLY), wo = open("f", O_WRONLY), d = open(".", O_RDONLY);
	char b[64] = { 0 };
	T(one_(r, sqe_(r, IORING_OP_WRITE, f, "hello world", 11, 0)));
	T(one_(r, sqe_(r, IORING_OP_READ, f, b, 5, 6)));
	S(b, 5);
	T(lseek(f, 0, SEEK_CUR));
	T(one_(r, sqe_(r, IORING_OP_READ, f, b, 5, -1)));
	T(lseek(f, 0, SEEK_CUR));
	T(one_(r, sqe_(r, IORING_OP_READ, f, b, 64, 100)));
	T(one_(r, sqe_(r, IORING_OP_READ, f, b, 0, 0)));
	T(one_(r, sqe_(r, IORING_OP_READ, wo, b, 5, 0)));
	T(one_(r, sqe_(r, IORING_OP_WRITE, ro, b, 5, 0)));
	T(one_(r, sqe_(r, IORING_OP_READ, d, b, 5, 0)));
	T(one_(r, sqe_(r, IORING_OP_READ, 99, b, 5, 0)));
	T(one_(r, sqe_(r, IORING_OP_READ, f, (void *)8, 5, 0)));
	struct iovec v[2] = { { b, 3 }, { b + 10, 20 } };
	T(one_(r, sqe_(r, IORING_OP_READV, f, v, 2, 0)));
	S(b, 18);
	T(one_(r, sqe_(r, IORING_OP_READV, f, v, 2000, 0)));
	T(one_(r, sqe_(r, IORING_OP_READV, f, (void *)8, 1, 0)));
	T(one_(r, sqe_(r, IORING_OP_WRITEV, f, v, 2, 11)));
	struct io_uring_sqe *e = sqe_(r, IORING_OP_READ, f, b, 5, 0);
	e->rw_flags = 1 << 20;
	T(one_(r, e));
	e = sqe_(r, IORING_OP_READ, f, b, 5, 0);
	e->rw_flags = RWF_HIPRI;
	T(one_(r, e));
	e = sqe_(r, IORING_OP_WRITE, f, "XY", 2, 0);
	e->rw_flags = RWF_APPEND;
	T(one_(r, e));
	T(lseek(f, 0, SEEK_END));
	T(one_(r, sqe_(r, IORING_OP_FSYNC, f, NULL, 0, 0)));
	e = sqe_(r, IORING_OP_FSYNC, f, NULL, 0, 0);
	e->fsync_flags = IORING_FSYNC_DATASYNC;
	T(one_(r, e));
	e = sqe_(r, IORING_OP_FSYNC, f, NULL, 0, 0);
	e->fsync_flags = 2;
	T(one_(r, e));
	T(one_(r, sqe_(r, IORING_OP_FSYNC, f, b, 0, 0)));
	T(one_(r, sqe_(r, IORING_OP_CLOSE, f, NULL, 0, 0)));
	T(one_(r, sqe_(r, IORING_OP_CLOSE, f, NULL, 0, 0)));
	T(one_(r, sqe_(r, IORING_OP_CLOSE, r->fd, NULL, 0, 0)));
	e = sqe_(r, IORING_OP_READ, ro, b, 5, 0);
	e->buf_index = 3;
	T(one_(r, e));
}

static void pipes(void)
{
	struct ring *r = ring_(8, 0);
	int p[2];
	char b[64] = { 0 };
	T(pipe(p));
	sqe_(r, IORING_OP_READ, p[0], b, 8, 0)->user_data = 7;
	T(submit_(r, 0));
	T(*r->cq_tail - *r->cq_head);
	T(write(p[1], "abc", 3));
	show_(r, 1);
	S(b, 3);
	/* While the program sleeps elsewhere. */
	sqe_(r, IORING_OP_READ, p[0], b, 8, 0)->user_data = 8;
	T(submit_(r, 0));
	if (!fork()) {
		usleep(20000);
		write(p[1], "defg", 4);
		_exit(0);
	}
	struct timespec t = { 0, 300000000 };
	T(nanosleep(&t, NULL));
	T(*r->cq_tail - *r->cq_head);
	show_(r, 1);
	S(b, 4);
	wait(NULL);
	/* While it runs. */
	sqe_(r, IORING_OP_READ, p[0], b, 8, 0)->user_data = 9;
	T(submit_(r, 0));
	if (!fork()) {
		usleep(20000);
		write(p[1], "hi", 2);
		_exit(0);
	}
	while (*(volatile unsigned *)r->cq_tail == *r->cq_head)
		;
	show_(r, 1);
	wait(NULL);
	/* The end of a pipe. */
	sqe_(r, IORING_OP_READ, p[0], b, 8, 0)->user_data = 10;
	T(submit_(r, 0));
	close(p[1]);
	show_(r, 1);
	/* O_NONBLOCK is for calls, RWF_NOWAIT for requests. */
	T(pipe2(p, O_NONBLOCK));
	struct io_uring_sqe *e = sqe_(r, IORING_OP_READ, p[0], b, 8, 0);
	e->rw_flags = RWF_NOWAIT;
	T(one_(r, e));
	sqe_(r, IORING_OP_READ, p[0], b, 8, 0)->user_data = 11;
	T(submit_(r, 0));
	T(*r->cq_tail - *r->cq_head);
	T(write(p[1], "x", 1));
	show_(r, 1);
	/* A full one. */
	static char big[1 << 17];
	T(write(p[1], big, sizeof big));
	sqe_(r, IORING_OP_WRITE, p[1], big, 4096, 0)->user_data = 12;
	T(submit_(r, 0));
	T(*r->cq_tail - *r->cq_head);
	T(read(p[0], big, 8192));
	show_(r, 1);
	/* One after the other. */
	T(pipe(p));
	sqe_(r, IORING_OP_READ, p[0], b, 1, 0)->user_data = 1;
	sqe_(r, IORING_OP_READ, p[0], b + 1, 1, 0)->user_data = 2;
	T(submit_(r, 0));
	T(write(p[1], "12", 2));
	sorted_(r, 2);
	signal(SIGPIPE, SIG_IGN);
	close(p[0]);
	T(one_(r, sqe_(r, IORING_OP_WRITE, p[1], b, 1, 0)));
}

static void polls(void)
{
	struct ring *r = ring_(8, 0);
	int p[2], q[2];
	T(pipe(p));
	struct io_uring_sqe *e = sqe_(r, IORING_OP_POLL_ADD, p[1], NULL, 0, 0);
	e->poll32_events = POLLOUT;
	T(one_(r, e));
	e = sqe_(r, IORING_OP_POLL_ADD, p[0], NULL, 0, 0);
	e->poll32_events = POLLIN, e->user_data = 5;
	T(submit_(r, 0));
	T(*r->cq_tail - *r->cq_head);
	T(write(p[1], "x", 1));
	show_(r, 1);
	char c;
	T(read(p[0], &c, 1));
	/* Again and again. */
	e = sqe_(r, IORING_OP_POLL_ADD, p[0], NULL, IORING_POLL_ADD_MULTI, 0);
	e->poll32_events = POLLIN, e->user_data = 6;
	T(submit_(r, 0));
	for (int i = 0; i < 3; i++) {
		T(write(p[1], "x", 1));
		show_(r, 1);
		T(read(p[0], &c, 1));
	}
	e = sqe_(r, IORING_OP_POLL_REMOVE, -1, (void *)6, 0, 0);
	e->user_data = 7;
	T(submit_(r, 2));
	sorted_(r, 2);
	e = sqe_(r, IORING_OP_POLL_REMOVE, -1, (void *)6, 0, 0);
	T(one_(r, e));
	/* Changed. */
	e = sqe_(r, IORING_OP_POLL_ADD, p[0], NULL, 0, 0);
	e->poll32_events = POLLPRI, e->user_data = 8;
	T(submit_(r, 0));
	e = sqe_(r, IORING_OP_POLL_REMOVE, -1, (void *)8, IORING_POLL_UPDATE_EVENTS | IORING_POLL_UPDATE_USER_DATA, 9);
	e->poll32_events = POLLIN, e->user_data = 10;
	T(submit_(r, 1));
	show_(r, 1);
	T(write(p[1], "x", 1));
	show_(r, 1);
	e = sqe_(r, IORING_OP_POLL_ADD, p[0], NULL, 64, 0);
	T(one_(r, e));
	e = sqe_(r, IORING_OP_POLL_ADD, p[0], (void *)1, 0, 0);
	T(one_(r, e));
	e = sqe_(r, IORING_OP_POLL_REMOVE, -1, (void *)8, 0, 1);
	T(one_(r, e));
	int f = open("f", O_CREAT | O_RDWR, 0644);
	e = sqe_(r, IORING_OP_POLL_ADD, f, NULL, 0, 0);
	e->poll32_events = POLLIN;
	T(one_(r, e));
	/* An end that goes. */
	T(pipe(q));
	e = sqe_(r, IORING_OP_POLL_ADD, q[0], NULL, 0, 0);
	e->poll32_events = POLLIN, e->user_data = 11;
	T(submit_(r, 0));
	close(q[1]);
	show_(r, 1);
	/* Cancelled. */
	T(pipe(q));
	for (int i = 0; i < 3; i++) {
		e = sqe_(r, IORING_OP_POLL_ADD, q[0], NULL, 0, 0);
		e->poll32_events = POLLIN, e->user_data = 20 + i / 2;
	}
	T(submit_(r, 0));
	e = sqe_(r, IORING_OP_ASYNC_CANCEL, -1, (void *)21, 0, 0);
	T(submit_(r, 2));
	sorted_(r, 2);
	e = sqe_(r, IORING_OP_ASYNC_CANCEL, -1, (void *)20, 0, 0);
	e->cancel_flags = IORING_ASYNC_CANCEL_ALL;
	T(submit_(r, 3));
	sorted_(r, 3);
	T(one_(r, sqe_(r, IORING_OP_ASYNC_CANCEL, -1, (void *)20, 0, 0)));
	e = sqe_(r, IORING_OP_POLL_ADD, q[0], NULL, 0, 0);
	e->poll32_events = POLLIN, e->user_data = 30;
	T(submit_(r, 0));
	e = sqe_(r, IORING_OP_ASYNC_CANCEL, q[0], NULL, 0, 0);
	e->cancel_flags = IORING_ASYNC_CANCEL_FD;
	T(submit_(r, 2));
	sorted_(r, 2);
	e = sqe_(r, IORING_OP_ASYNC_CANCEL, -1, NULL, 0, 0);
	e->cancel_flags = IORING_ASYNC_CANCEL_ANY;
	T(one_(r, e));
	e = sqe_(r, IORING_OP_ASYNC_CANCEL, -1, NULL, 0, 0);
	e->cancel_flags = IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_FD;
	T(one_(r, e));
	e = sqe_(r, IORING_OP_ASYNC_CANCEL, -1, NULL, 0, 0);
	e->cancel_flags = 1 << 10;
	T(one_(r, e));
}

static void timeouts(void)
{
	struct ring *r = ring_(8, 0);
	struct __kernel_timespec t = { 0, 20000000 }, far = { 100, 0 };
	T(one_(r, sqe_(r, IORING_OP_TIMEOUT, -1, &t, 1, 0)));
	sqe_(r, IORING_OP_TIMEOUT, -1, &far, 1, 2)->user_data = 1;
	T(submit_(r, 0));
	sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0)->user_data = 2;
	sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0)->user_data = 3;
	T(submit_(r, 3));
	sorted_(r, 3);
	sqe_(r, IORING_OP_TIMEOUT, -1, &far, 1, 0)->user_data = 4;
	T(submit_(r, 0));
	sqe_(r, IORING_OP_TIMEOUT_REMOVE, -1, (void *)4, 0, 0)->user_data = 5;
	T(submit_(r, 2));
	sorted_(r, 2);
	T(one_(r, sqe_(r, IORING_OP_TIMEOUT_REMOVE, -1, (void *)4, 0, 0)));
	sqe_(r, IORING_OP_TIMEOUT, -1, &far, 1, 0)->user_data = 6;
	T(submit_(r, 0));
	struct io_uring_sqe *e = sqe_(r, IORING_OP_TIMEOUT_REMOVE, -1, (void *)6, 0, (uintptr_t)&t);
	e->timeout_flags = IORING_TIMEOUT_UPDATE, e->user_data = 7;
	T(submit_(r, 2));
	sorted_(r, 2);
	T(one_(r, sqe_(r, IORING_OP_TIMEOUT, -1, &t, 2, 0)));
	T(one_(r, sqe_(r, IORING_OP_TIMEOUT, -1, (void *)8, 1, 0)));
	struct __kernel_timespec bad = { -1, 0 };
	T(one_(r, sqe_(r, IORING_OP_TIMEOUT, -1, &bad, 1, 0)));
	for (unsigned f = 1; f < 256; f *= 2) {
		e = sqe_(r, IORING_OP_TIMEOUT, -1, &t, 1, 1);
		e->timeout_flags = f;
		T(one_(r, e));
		e = sqe_(r, IORING_OP_TIMEOUT_REMOVE, -1, (void *)6, 0, (uintptr_t)&t);
		e->timeout_flags = f;
		T(one_(r, e));
	}
	e = sqe_(r, IORING_OP_TIMEOUT, -1, &t, 1, 0);
	e->timeout_flags = IORING_TIMEOUT_BOOTTIME | IORING_TIMEOUT_REALTIME;
	T(one_(r, e));
	e = sqe_(r, IORING_OP_TIMEOUT, -1, &t, 1, 3);
	e->timeout_flags = 1 << 6, e->user_data = 40;
	T(submit_(r, 0));
	show_(r, 1); show_(r, 1); show_(r, 1);
	/* Of the call. */
	struct io_uring_getevents_arg g = { .ts = (uintptr_t)&t };
	T(enter_(r->fd, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &g, sizeof g));
	T(enter_(r->fd, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &g, 8));
	T(enter_(r->fd, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, (void *)8, sizeof g));
	g.ts = (uintptr_t)&bad;
	T(enter_(r->fd, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &g, sizeof g));
}

static void links(void)
{
	struct ring *r = ring_(16, 0);
	int p[2];
	char b[8];
	struct __kernel_timespec t = { 0, 20000000 }, far = { 100, 0 };
	T(pipe(p));
	sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0)->flags = IOSQE_IO_LINK;
	sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0)->flags = IOSQE_IO_LINK;
	sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0);
	T(submit_(r, 3));
	show_(r, 3);
	/* A failure cancels what follows. */
	struct io_uring_sqe *e = sqe_(r, IORING_OP_READ, 99, b, 1, 0);
	e->flags = IOSQE_IO_LINK, e->user_data = 1;
	e = sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0);
	e->flags = IOSQE_IO_LINK, e->user_data = 2;
	sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0)->user_data = 3;
	sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0)->user_data = 4;
	T(submit_(r, 4));
	sorted_(r, 4);
	/* Not behind a hard link. */
	e = sqe_(r, IORING_OP_READ, 99, b, 1, 0);
	e->flags = IOSQE_IO_HARDLINK, e->user_data = 1;
	sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0)->user_data = 2;
	T(submit_(r, 2));
	sorted_(r, 2);
	/* A short read is one. */
	T(write(p[1], "ab", 2));
	e = sqe_(r, IORING_OP_READ, p[0], b, 8, 0);
	e->flags = IOSQE_IO_LINK, e->user_data = 1;
	sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0)->user_data = 2;
	T(submit_(r, 2));
	sorted_(r, 2);
	/* Behind what waits. */
	e = sqe_(r, IORING_OP_READ, p[0], b, 2, 0);
	e->flags = IOSQE_IO_LINK, e->user_data = 1;
	e = sqe_(r, IORING_OP_WRITE, p[1], "zz", 2, 0);
	e->flags = IOSQE_IO_LINK, e->user_data = 2;
	sqe_(r, IORING_OP_READ, p[0], b, 2, 0)->user_data = 3;
	T(submit_(r, 0));
	T(*r->cq_tail - *r->cq_head);
	T(write(p[1], "ab", 2));
	show_(r, 3);
	/* An entry that is no good, in the middle. */
	e = sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0);
	e->flags = IOSQE_IO_LINK, e->user_data = 1;
	e = sqe_(r, 200, -1, NULL, 0, 0);
	e->flags = IOSQE_IO_LINK, e->user_data = 2;
	sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0)->user_data = 3;
	T(submit_(r, 0));
	sorted_(r, 3);
	/* Timeouts of links. */
	e = sqe_(r, IORING_OP_READ, p[0], b, 2, 0);
	e->flags = IOSQE_IO_LINK, e->user_data = 1;
	sqe_(r, IORING_OP_LINK_TIMEOUT, -1, &t, 1, 0)->user_data = 2;
	T(submit_(r, 2));
	sorted_(r, 2);
	e = sqe_(r, IORING_OP_READ, p[0], b, 2, 0);
	e->flags = IOSQE_IO_LINK, e->user_data = 1;
	sqe_(r, IORING_OP_LINK_TIMEOUT, -1, &far, 1, 0)->user_data = 2;
	T(submit_(r, 0));
	T(write(p[1], "ab", 2));
	sorted_(r, 2);
	e = sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0);
	e->flags = IOSQE_IO_LINK, e->user_data = 1;
	e = sqe_(r, IORING_OP_LINK_TIMEOUT, -1, &far, 1, 0);
	e->flags = IOSQE_IO_LINK, e->user_data = 2;
	sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0)->user_data = 3;
	T(submit_(r, 0));
	sorted_(r, 3);
	T(one_(r, sqe_(r, IORING_OP_LINK_TIMEOUT, -1, &far, 1, 0)));
	/* Drains. */
	sqe_(r, IORING_OP_READ, p[0], b, 2, 0)->user_data = 1;
	e = sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0);
	e->flags = IOSQE_IO_DRAIN, e->user_data = 2;
	sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0)->user_data = 3;
	T(submit_(r, 0));
	T(*r->cq_tail - *r->cq_head);
	T(write(p[1], "ab", 2));
	show_(r, 3);
	/* Without completions. */
	e = sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0);
	e->flags = IOSQE_CQE_SKIP_SUCCESS, e->user_data = 1;
	sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0)->user_data = 2;
	T(submit_(r, 0));
	show_(r, 1);
	e = sqe_(r, IORING_OP_READ, 99, NULL, 0, 0);
	e->flags = IOSQE_CQE_SKIP_SUCCESS | IOSQE_IO_LINK, e->user_data = 1;
	sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0)->user_data = 2;
	T(submit_(r, 0));
	show_(r, 1);
	e = sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0);
	e->flags = IOSQE_IO_DRAIN;
	T(one_(r, e));
	T(*r->cq_tail - *r->cq_head);
}

static void ends(void)
{
	int p[2], fd;
	char b[8];
	/* A ring that goes lets the files of its requests go. */
	T(pipe(p));
	struct ring *r = ring_(8, 0);
	struct io_uring_sqe *e = sqe_(r, IORING_OP_POLL_ADD, p[1], NULL, 0, 0);
	e->poll32_events = POLLPRI;
	T(submit_(r, 0));
	close(p[1]);
	unmap_(r);
	close(r->fd);
	T(read(p[0], b, 1));
	/* So does a thread's end, and execve(2). */
	T(pipe(p));
	if (!fork()) {
		r = ring_(8, 0);
		e = sqe_(r, IORING_OP_POLL_ADD, r->fd, NULL, 0, 0);
		e->poll32_events = POLLIN;
		e = sqe_(r, IORING_OP_POLL_ADD, p[1], NULL, 0, 0);
		e->poll32_events = POLLPRI;
		submit_(r, 0);
		close(p[0]);
		execl("/bin/sleep", "sleep", "0", NULL);
		_exit(1);
	}
	close(p[1]);
	T(read(p[0], b, 1));
	wait(NULL);
	/* Rings do not travel. */
	int s[2];
	T(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	r = ring_(8, 0);
	char c[CMSG_SPACE(sizeof fd)] = { 0 };
	struct iovec v = { b, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = c, .msg_controllen = sizeof c };
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	h->cmsg_level = SOL_SOCKET, h->cmsg_type = SCM_RIGHTS, h->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(h), &r->fd, sizeof fd);
	T(sendmsg(s[0], &m, 0));
	/* A signal ends the wait. */
	signal(SIGALRM, nothing_);
	ualarm(20000, 0);
	T(enter_(r->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0));
	sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0);
	ualarm(20000, 0);
	T(enter_(r->fd, 1, 2, IORING_ENTER_GETEVENTS, NULL, 0));
	show_(r, 1);
	/* A child may use it, too. */
	if (!fork()) {
		sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0);
		_exit(submit_(r, 1) != 1);
	}
	int status;
	wait(&status);
	T(status);
	show_(r, 1);
}

static const struct check list[] = {
	CHECK(setup),
	CHECK(nops),
	CHECK(overflow),
	CHECK(files),
	CHECK(pipes),
	CHECK(polls),
	CHECK(timeouts),
	CHECK(links),
	CHECK(ends),
};
MAIN(list)
