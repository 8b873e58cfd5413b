/* io_uring: the operations by family, what is registered, provided buffers, the kernel's thread. */
#define AREA "uring2"
#include "check.h"
#include "uring.h"
#include <linux/futex.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/xattr.h>

static void paths(void)
{
	struct ring *r = ring_(8, 0);
	struct io_uring_sqe *e;
	char b[300] = { 0 };
#define PATH(op, a, len_, off_, flags_) (e = sqe_(r, op, AT_FDCWD, a, len_, (uintptr_t)(off_)), e->open_flags = flags_, one_(r, e))
	T(PATH(IORING_OP_MKDIRAT, "d", 0755, 0, 0));
	T(PATH(IORING_OP_MKDIRAT, "d", 0755, 0, 0));
	int fd = PATH(IORING_OP_OPENAT, "d/f", 0644, 0, O_CREAT | O_RDWR);
	T(write(fd, "hello", 5));
	T(fcntl(fd, F_GETFL) & (O_NONBLOCK | O_ACCMODE));
	T(PATH(IORING_OP_OPENAT, "d/none", 0, 0, O_RDONLY));
	T(PATH(IORING_OP_OPENAT, (void *)8, 0, 0, O_RDONLY));
	struct { unsigned long long flags, mode, resolve; } how = { O_RDONLY, 0, 0 };
	Y(PATH(IORING_OP_OPENAT2, "d/f", sizeof how, &how, 0) > 0);
	T(PATH(IORING_OP_OPENAT2, "d/f", 8, &how, 0));
	T(PATH(IORING_OP_SYMLINKAT, "d/f", 0, "s", 0));
	T(PATH(IORING_OP_LINKAT, "d/f", AT_FDCWD, "h", 0));
	T(PATH(IORING_OP_RENAMEAT, "h", AT_FDCWD, "k", 0));
	T(PATH(IORING_OP_RENAMEAT, "h", AT_FDCWD, "k", 0));
	struct statx x = { 0 };
	T(PATH(IORING_OP_STATX, "k", STATX_SIZE | STATX_NLINK, &x, 0));
	T(x.stx_size);
	T(x.stx_nlink);
	T(PATH(IORING_OP_STATX, "k", 1u << 31, &x, 0));
	e = sqe_(r, IORING_OP_STATX, fd, "", STATX_SIZE, (uintptr_t)&x), e->statx_flags = AT_EMPTY_PATH;
	T(one_(r, e));
	T(PATH(IORING_OP_UNLINKAT, "k", 0, 0, 0));
	T(PATH(IORING_OP_UNLINKAT, "d", 0, 0, 0));
	T(PATH(IORING_OP_UNLINKAT, "d", 0, 0, AT_REMOVEDIR));
	T(PATH(IORING_OP_UNLINKAT, "d", 0, 0, 1));
	T(PATH(IORING_OP_UNLINKAT, "s", 0, 0, 0));
	T(one_(r, sqe_(r, OP_FTRUNCATE, fd, NULL, 0, 3)));
	T(lseek(fd, 0, SEEK_END));
	T(one_(r, sqe_(r, OP_FTRUNCATE, fd, NULL, 0, -1)));
	T(one_(r, sqe_(r, IORING_OP_FALLOCATE, fd, (void *)100, 0, 0)));
	T(lseek(fd, 0, SEEK_END));
	T(one_(r, sqe_(r, IORING_OP_FALLOCATE, fd, (void *)0, 0, 0)));
	T(one_(r, sqe_(r, IORING_OP_SYNC_FILE_RANGE, fd, NULL, 100, 0)));
	e = sqe_(r, IORING_OP_FADVISE, fd, NULL, 100, 0), e->fadvise_advice = POSIX_FADV_WILLNEED;
	T(one_(r, e));
	e = sqe_(r, IORING_OP_FADVISE, fd, NULL, 100, 0), e->fadvise_advice = 99;
	T(one_(r, e));
	char *m = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	*m = 7;
	e = sqe_(r, IORING_OP_MADVISE, -1, m, 4096, 0), e->fadvise_advice = MADV_DONTNEED;
	T(one_(r, e));
	T(*m);
	e = sqe_(r, IORING_OP_MADVISE, -1, m + 1, 4096, 0), e->fadvise_advice = MADV_DONTNEED;
	T(one_(r, e));
	T(one_(r, sqe_(r, IORING_OP_FSETXATTR, fd, "user.a", 3, (uintptr_t)"abc")));
	T(one_(r, sqe_(r, IORING_OP_FGETXATTR, fd, "user.a", 64, (uintptr_t)b)));
	T(one_(r, sqe_(r, IORING_OP_FGETXATTR, fd, "user.b", 64, (uintptr_t)b)));
	e = sqe_(r, IORING_OP_GETXATTR, -1, "user.a", 64, (uintptr_t)b), e->addr3 = (uintptr_t)"d/f";
	T(one_(r, e));
	e = sqe_(r, IORING_OP_SETXATTR, -1, "user.c", 2, (uintptr_t)"xy"), e->addr3 = (uintptr_t)"d/f";
	T(one_(r, e));
	/* A pipe does not wait for its other end. */
	T(mkfifo("p", 0644));
	fd = PATH(IORING_OP_OPENAT, "p", 0, 0, O_RDONLY);
	Y(fd > 0);
	T(fcntl(fd, F_GETFL) & O_NONBLOCK);
	int ep = epoll_create1(0), ev = eventfd(1, 0);
	struct epoll_event w = { EPOLLIN, { .u64 = 5 } };
	T(one_(r, sqe_(r, IORING_OP_EPOLL_CTL, ep, &w, EPOLL_CTL_ADD, ev)));
	T(one_(r, sqe_(r, IORING_OP_EPOLL_CTL, ep, &w, EPOLL_CTL_ADD, ev)));
	T(epoll_wait(ep, &w, 1, 0));
	T(one_(r, sqe_(r, IORING_OP_EPOLL_CTL, ep, NULL, EPOLL_CTL_DEL, ev)));
}

static void splices(void)
{
	struct ring *r = ring_(8, 0);
	int p[2], q[2], f = open("f", O_CREAT | O_RDWR, 0644);
	char b[16] = { 0 };
	struct io_uring_sqe *e;
	pipe(p), pipe(q);
	T(write(f, "0123456789", 10));
#define SPLICE(op, in, inoff, out, outoff, n) (e = sqe_(r, op, out, NULL, n, outoff), e->splice_fd_in = in, e->splice_off_in = inoff, e)
	T(one_(r, SPLICE(IORING_OP_SPLICE, f, 2, p[1], -1, 4)));
	T(one_(r, SPLICE(IORING_OP_TEE, p[0], 0, q[1], 0, 100)));
	T(read(p[0], b, 16));
	S(b, 4);
	T(one_(r, SPLICE(IORING_OP_SPLICE, q[0], -1, f, 8, 100)));
	T(pread(f, b, 16, 0));
	S(b, 12);
	T(one_(r, SPLICE(IORING_OP_SPLICE, f, 0, f, 0, 4)));
	T(one_(r, SPLICE(IORING_OP_SPLICE, 99, 0, p[1], -1, 4)));
	T(one_(r, SPLICE(IORING_OP_SPLICE, p[0], 3, f, -1, 4)));
	SPLICE(IORING_OP_SPLICE, p[0], -1, q[1], -1, 100)->user_data = 4;
	T(submit_(r, 0));
	usleep(20000);
	T(*r->cq_tail - *r->cq_head);
	T(write(p[1], "late", 4));
	show_(r, 1);
	T(read(q[0], b, 16));
	S(b, 4);
}

static void sockets(void)
{
	struct ring *r = ring_(32, 0);
	struct io_uring_sqe *e;
	char b[256] = { 0 };
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) }, peer;
	socklen_t n = sizeof a, m = sizeof peer;
	int l = one_(r, sqe_(r, IORING_OP_SOCKET, AF_INET, NULL, 0, SOCK_STREAM));
	Y(l > 0);
	T(one_(r, sqe_(r, IORING_OP_SOCKET, AF_INET, NULL, 0, 77)));
	T(one_(r, sqe_(r, OP_BIND, l, &a, 0, sizeof a)));
	T(one_(r, sqe_(r, OP_LISTEN, l, NULL, 5, 0)));
	T(getsockname(l, (void *)&a, &n));
	sqe_(r, IORING_OP_ACCEPT, l, &peer, 0, (uintptr_t)&m)->user_data = 1;
	T(submit_(r, 0));
	int c = socket(AF_INET, SOCK_STREAM, 0);
	sqe_(r, IORING_OP_CONNECT, c, &a, 0, sizeof a)->user_data = 2;
	T(submit_(r, 2));
	struct io_uring_cqe q;
	int s = -1;
	for (int i = 0; i < 2 && take_(r, &q); i++)
		if (q.user_data == 1)
			s = q.res;
		else
			T(q.res);
	Y(s > 0);
	T(m);
	T(one_(r, sqe_(r, IORING_OP_SEND, c, "hello", 5, 0)));
	T(one_(r, sqe_(r, IORING_OP_RECV, s, b, 64, 0)));
	S(b, 5);
	sqe_(r, IORING_OP_RECV, s, b, 64, 0)->user_data = 3;
	T(submit_(r, 0));
	T(*r->cq_tail - *r->cq_head);
	T(send(c, "later", 5, 0));
	show_(r, 1);
	e = sqe_(r, IORING_OP_RECV, s, b, 10, 0);
	e->msg_flags = MSG_WAITALL, e->user_data = 4;
	T(submit_(r, 0));
	T(send(c, "12345", 5, 0));
	usleep(20000);
	T(*r->cq_tail - *r->cq_head);
	T(send(c, "67890", 5, 0));
	show_(r, 1);
	S(b, 10);
	e = sqe_(r, IORING_OP_RECV, s, b, 10, 0), e->msg_flags = MSG_DONTWAIT;
	T(one_(r, e));
	T(one_(r, sqe_(r, IORING_OP_RECV, 0, b, 10, 0)));
	e = sqe_(r, IORING_OP_RECV, s, b, 10, 0), e->ioprio = 1 << 9;
	T(one_(r, e));
	struct iovec v[2] = { { "ab", 2 }, { "cde", 3 } }, w = { b, 64 };
	struct msghdr h = { .msg_iov = v, .msg_iovlen = 2 };
	T(one_(r, sqe_(r, IORING_OP_SENDMSG, c, &h, 1, 0)));
	struct msghdr g = { .msg_iov = &w, .msg_iovlen = 1 };
	T(one_(r, sqe_(r, IORING_OP_RECVMSG, s, &g, 1, 0)));
	S(b, 5);
	T(one_(r, sqe_(r, IORING_OP_SENDMSG, c, (void *)8, 1, 0)));
	/* Without copies. */
	e = sqe_(r, IORING_OP_SEND_ZC, c, "zero", 4, 0), e->user_data = 5;
	T(submit_(r, 2));
	show_(r, 2);
	T(read(s, b, 64));
	e = sqe_(r, IORING_OP_SENDMSG_ZC, c, &h, 1, 0), e->user_data = 6;
	T(submit_(r, 2));
	show_(r, 2);
	T(read(s, b, 64));
	T(one_(r, sqe_(r, IORING_OP_SHUTDOWN, c, NULL, SHUT_WR, 0)));
	T(one_(r, sqe_(r, IORING_OP_RECV, s, b, 64, 0)));
	T(one_(r, sqe_(r, IORING_OP_SHUTDOWN, 0, NULL, SHUT_WR, 0)));
	T(one_(r, sqe_(r, IORING_OP_SEND, c, "x", 1, 0)));
	/* Again and again. */
	e = sqe_(r, IORING_OP_ACCEPT, l, NULL, 0, 0), e->ioprio = IORING_ACCEPT_MULTISHOT, e->user_data = 7;
	T(submit_(r, 0));
	for (int i = 0; i < 3; i++) {
		int x = socket(AF_INET, SOCK_STREAM, 0);
		T(connect(x, (void *)&a, sizeof a));
		Y(take_(r, &q) && q.res > 0);
		T(q.flags);
		close(q.res), close(x);
	}
	e = sqe_(r, IORING_OP_ASYNC_CANCEL, l, NULL, 0, 0), e->cancel_flags = IORING_ASYNC_CANCEL_FD, e->user_data = 8;
	T(submit_(r, 2));
	sorted_(r, 2);
	int x = socket(AF_INET, SOCK_STREAM, 0);
	a.sin_port = 1;
	T(one_(r, sqe_(r, IORING_OP_CONNECT, x, &a, 0, sizeof a)));
}

static void buffers(void)
{
	struct ring *r = ring_(32, 0);
	struct io_uring_sqe *e;
	static char mem[8][64];
	int p[2], s[2];
	pipe(p), socketpair(AF_UNIX, SOCK_STREAM, 0, s);
#define PROVIDE(n, len, bid, group) (e = sqe_(r, IORING_OP_PROVIDE_BUFFERS, n, mem, len, bid), e->buf_group = group, one_(r, e))
	e = sqe_(r, IORING_OP_READ, p[0], NULL, 64, 0), e->flags = IOSQE_BUFFER_SELECT, e->buf_group = 7;
	T(write(p[1], "x", 1));
	T(one_(r, e));
	T(PROVIDE(0, 64, 0, 7));
	T(PROVIDE(70000, 64, 0, 7));
	T(PROVIDE(4, 64, 10, 7));
	for (int i = 0; i < 2; i++) {
		e = sqe_(r, IORING_OP_READ, p[0], NULL, 64, 0), e->flags = IOSQE_BUFFER_SELECT, e->buf_group = 7, e->user_data = i;
		T(submit_(r, 0));
		T(write(p[1], "abc", 3));
		show_(r, 1);
	}
	S(mem[0], 4);
	e = sqe_(r, IORING_OP_REMOVE_BUFFERS, 100, NULL, 0, 0), e->buf_group = 7;
	T(one_(r, e));
	e = sqe_(r, IORING_OP_REMOVE_BUFFERS, 100, NULL, 0, 0), e->buf_group = 9;
	T(one_(r, e));
	/* A ring of them. */
	struct io_uring_buf_ring *br = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct io_uring_buf_reg reg = { .ring_addr = (uintptr_t)br, .ring_entries = 8, .bgid = 3 };
	T(register_(r->fd, IORING_REGISTER_PBUF_RING, &reg, 1));
	T(register_(r->fd, IORING_REGISTER_PBUF_RING, &reg, 1));
	reg.ring_entries = 7, reg.bgid = 4;
	T(register_(r->fd, IORING_REGISTER_PBUF_RING, &reg, 1));
	for (int i = 0; i < 4; i++)
		br->bufs[i] = (struct io_uring_buf){ (uintptr_t)mem[i], 64, 20 + i };
	__atomic_store_n(&br->tail, 4, __ATOMIC_RELEASE);
	e = sqe_(r, IORING_OP_RECV, s[0], NULL, 0, 0), e->ioprio = IORING_RECV_MULTISHOT, e->flags = IOSQE_BUFFER_SELECT, e->buf_group = 3, e->user_data = 9;
	T(submit_(r, 0));
	for (int i = 0; i < 4; i++) {
		T(send(s[1], "abcdef", 3 + i, 0));
		struct io_uring_cqe q;
		Y(take_(r, &q));
		T(q.res);
		T(q.flags & ~4);
	}
	T(send(s[1], "abcdef", 6, 0));
	show_(r, 1);
	e = sqe_(r, IORING_OP_RECV, s[0], NULL, 0, 0), e->ioprio = IORING_RECV_MULTISHOT;
	T(one_(r, e));
	/* Messages. */
	br->bufs[4] = (struct io_uring_buf){ (uintptr_t)mem[0], 256, 30 };
	__atomic_store_n(&br->tail, 5, __ATOMIC_RELEASE);
	struct msghdr h = { .msg_namelen = 16, .msg_controllen = 8 };
	e = sqe_(r, IORING_OP_RECVMSG, s[0], &h, 1, 0), e->ioprio = IORING_RECV_MULTISHOT, e->flags = IOSQE_BUFFER_SELECT, e->buf_group = 3, e->user_data = 10;
	T(submit_(r, 1));
	struct io_uring_cqe q;
	Y(take_(r, &q));
	T(q.res);
	T(q.flags & ~4);
	unsigned *out = (void *)mem[0];
	T(out[0]); T(out[1]); T(out[2]); T(out[3]);
	S((char *)mem + 16 + 16 + 8, 6);
	reg = (struct io_uring_buf_reg){ .bgid = 3 };
	T(register_(r->fd, IORING_UNREGISTER_PBUF_RING, &reg, 1));
	T(register_(r->fd, IORING_UNREGISTER_PBUF_RING, &reg, 1));
	/* One that the kernel has. */
	reg = (struct io_uring_buf_reg){ .ring_entries = 16, .bgid = 5, .pad = 1 };
	T(register_(r->fd, IORING_REGISTER_PBUF_RING, &reg, 1));
	br = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0x80000000ull | 5ull << 16);
	Y(br != MAP_FAILED);
	br->bufs[0] = (struct io_uring_buf){ (uintptr_t)mem[0], 64, 1 };
	__atomic_store_n(&br->tail, 1, __ATOMIC_RELEASE);
	e = sqe_(r, OP_READ_MULTISHOT, p[0], NULL, 0, -1), e->flags = IOSQE_BUFFER_SELECT, e->buf_group = 5, e->user_data = 11;
	T(submit_(r, 0));
	T(write(p[1], "multi", 5));
	show_(r, 1);
	T(write(p[1], "again", 5));
	show_(r, 1);
}

static void registered(void)
{
	struct ring *r = ring_(16, 0);
	struct io_uring_sqe *e;
	int f = open("f", O_CREAT | O_RDWR, 0644), fds[4] = { f, -1, f, 99 };
	static char mem[2][4096];
	T(register_(r->fd, IORING_UNREGISTER_FILES, NULL, 0));
	T(register_(r->fd, IORING_REGISTER_FILES, fds, 4));
	T(register_(r->fd, IORING_REGISTER_FILES, fds, 0));
	T(register_(r->fd, IORING_REGISTER_FILES, fds, 3));
	T(register_(r->fd, IORING_REGISTER_FILES, fds, 3));
	close(f);
#define FIXED(x) (e = x, e->flags |= IOSQE_FIXED_FILE, one_(r, e))
	T(FIXED(sqe_(r, IORING_OP_WRITE, 0, "fixed", 5, 0)));
	T(FIXED(sqe_(r, IORING_OP_READ, 2, mem, 5, 0)));
	T(FIXED(sqe_(r, IORING_OP_READ, 1, mem, 5, 0)));
	T(FIXED(sqe_(r, IORING_OP_READ, 5, mem, 5, 0)));
	e = sqe_(r, IORING_OP_OPENAT, AT_FDCWD, "f", 0, 0), e->file_index = 2;
	T(one_(r, e));
	T(FIXED(sqe_(r, IORING_OP_READ, 1, mem, 5, 0)));
	e = sqe_(r, IORING_OP_CLOSE, 0, NULL, 0, 0), e->file_index = 2;
	T(one_(r, e));
	e = sqe_(r, IORING_OP_CLOSE, 0, NULL, 0, 0), e->file_index = 2;
	T(one_(r, e));
	e = sqe_(r, IORING_OP_OPENAT, AT_FDCWD, "f", 0, 0), e->file_index = -1;
	T(one_(r, e));
	e = sqe_(r, IORING_OP_OPENAT, AT_FDCWD, "f", 0, 0), e->file_index = -1;
	T(one_(r, e));
	e = sqe_(r, OP_FIXED_FD_INSTALL, 0, NULL, 0, 0);
	T(one_(r, e));
	Y(FIXED(sqe_(r, OP_FIXED_FD_INSTALL, 0, NULL, 0, 0)) > 0);
	int new[2] = { -1, r->fd };
	T(one_(r, sqe_(r, IORING_OP_FILES_UPDATE, -1, new, 1, 0)));
	T(one_(r, sqe_(r, IORING_OP_FILES_UPDATE, -1, new + 1, 1, 0)));
	T(FIXED(sqe_(r, IORING_OP_READ, 0, mem, 5, 0)));
	T(register_(r->fd, IORING_UNREGISTER_FILES, NULL, 0));
	/* Tags. */
	unsigned long long tags[2] = { 100, 101 };
	f = open("f", O_RDWR);
	int two[2] = { f, f };
	struct io_uring_rsrc_register rr = { .nr = 2, .data = (uintptr_t)two, .tags = (uintptr_t)tags };
	T(register_(r->fd, IORING_REGISTER_FILES2, &rr, sizeof rr));
	T(register_(r->fd, IORING_UNREGISTER_FILES, NULL, 0));
	sorted_(r, 2);
	/* Buffers. */
	struct iovec v[2] = { { mem[0], 4096 }, { mem[1], 100 } }, bad = { (void *)8, 100 };
	T(register_(r->fd, IORING_REGISTER_BUFFERS, &bad, 1));
	T(register_(r->fd, IORING_REGISTER_BUFFERS, v, 2));
	T(register_(r->fd, IORING_REGISTER_BUFFERS, v, 2));
	strcpy(mem[0] + 10, "in the buffer");
	e = sqe_(r, IORING_OP_WRITE_FIXED, f, mem[0] + 10, 13, 0), e->buf_index = 0;
	T(one_(r, e));
	e = sqe_(r, IORING_OP_READ_FIXED, f, mem[1], 13, 0), e->buf_index = 1;
	T(one_(r, e));
	S(mem[1], 13);
	e = sqe_(r, IORING_OP_READ_FIXED, f, mem[1] + 90, 13, 0), e->buf_index = 1;
	T(one_(r, e));
	e = sqe_(r, IORING_OP_READ_FIXED, f, mem[1], 13, 0), e->buf_index = 2;
	T(one_(r, e));
	T(register_(r->fd, IORING_UNREGISTER_BUFFERS, NULL, 0));
	T(register_(r->fd, IORING_UNREGISTER_BUFFERS, NULL, 0));
	/* An eventfd. */
	int ev = eventfd(0, EFD_NONBLOCK);
	unsigned long long n = 0;
	T(register_(r->fd, IORING_REGISTER_EVENTFD, &f, 1));
	T(register_(r->fd, IORING_REGISTER_EVENTFD, &ev, 1));
	T(register_(r->fd, IORING_REGISTER_EVENTFD, &ev, 1));
	T(one_(r, sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0)));
	T(read(ev, &n, 8));
	T(n);
	T(register_(r->fd, IORING_UNREGISTER_EVENTFD, NULL, 0));
	T(register_(r->fd, IORING_UNREGISTER_EVENTFD, NULL, 0));
	/* Rings by number. */
	struct io_uring_rsrc_update u = { .offset = -1u, .data = r->fd };
	T(register_(r->fd, IORING_REGISTER_RING_FDS, &u, 1));
	T(u.offset);
	T(enter_(0, 0, 0, 1 << 4, NULL, 0));
	T(enter_(1, 0, 0, 1 << 4, NULL, 0));
	T(enter_(16, 0, 0, 1 << 4, NULL, 0));
	u.data = 0;
	T(register_(r->fd, IORING_UNREGISTER_RING_FDS, &u, 1));
	T(enter_(0, 0, 0, 1 << 4, NULL, 0));
	T(register_(r->fd, 1000, NULL, 0));
	T(register_(0, IORING_REGISTER_FILES, fds, 1));
	/* Restrictions. */
	r = ring_(8, IORING_SETUP_R_DISABLED);
	T(enter_(r->fd, 0, 0, 0, NULL, 0));
	struct io_uring_restriction x[2] = { { .opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_NOP }, { .opcode = IORING_RESTRICTION_REGISTER_OP, .register_op = IORING_REGISTER_PROBE } };
	T(register_(r->fd, IORING_REGISTER_RESTRICTIONS, x, 2));
	T(register_(r->fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0));
	T(one_(r, sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0)));
	T(one_(r, sqe_(r, IORING_OP_READ, 0, NULL, 0, 0)));
	T(register_(r->fd, IORING_REGISTER_FILES, two, 1));
	/* What there is. */
	struct { struct io_uring_probe p; struct io_uring_probe_op o[70]; } pr = { 0 };
	T(register_(r->fd, IORING_REGISTER_PROBE, &pr, 70));
	for (int i = 0; i < 46; i++)
		Y(pr.p.ops[i].flags);
	r = ring_(8, 0);
	int id = register_(r->fd, IORING_REGISTER_PERSONALITY, NULL, 0);
	T(id);
	if (!fork()) {
		drop_root();
		e = sqe_(r, IORING_OP_MKDIRAT, AT_FDCWD, "/made", 0755, 0), e->personality = 0;
		long a = one_(r, e);
		_exit(a == 0);
	}
	wait(NULL);
	T(register_(r->fd, IORING_UNREGISTER_PERSONALITY, NULL, id));
	T(register_(r->fd, IORING_UNREGISTER_PERSONALITY, NULL, id));
}

static void messages(void)
{
	struct ring *r = ring_(8, 0), *s = ring_(8, 0);
	struct io_uring_sqe *e;
	e = sqe_(r, IORING_OP_MSG_RING, s->fd, NULL, 77, 88), e->user_data = 1;
	T(submit_(r, 1));
	show_(r, 1);
	show_(s, 1);
	T(one_(r, sqe_(r, IORING_OP_MSG_RING, 0, NULL, 77, 88)));
	T(one_(r, sqe_(r, IORING_OP_MSG_RING, s->fd, (void *)9, 77, 88)));
	struct pollfd p = { .fd = s->fd, .events = POLLIN };
	T(poll(&p, 1, 0));
	sqe_(r, IORING_OP_MSG_RING, s->fd, NULL, 1, 2);
	T(submit_(r, 1));
	T(poll(&p, 1, 0));
	/* Rings watch rings. */
	e = sqe_(r, IORING_OP_POLL_ADD, s->fd, NULL, 0, 0), e->poll32_events = POLLIN, e->user_data = 5;
	show_(r, 1);
	T(submit_(r, 1));
	show_(r, 1);
	int ep = epoll_create1(0);
	struct epoll_event w = { EPOLLIN };
	T(epoll_ctl(ep, EPOLL_CTL_ADD, r->fd, &w));
	T(epoll_wait(ep, &w, 1, 0));
	sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0);
	T(submit_(r, 0));
	T(epoll_wait(ep, &w, 1, 1000));
}

static void futexes(void)
{
	struct ring *r = ring_(8, 0);
	struct io_uring_sqe *e;
	static unsigned word = 1, other = 1;
#define FUTEX(op, val) (e = sqe_(r, op, 2 /* FUTEX2_SIZE_U32 */, &word, 0, val), e->addr3 = ~0u, e)
	T(one_(r, FUTEX(OP_FUTEX_WAIT, 2)));
	FUTEX(OP_FUTEX_WAIT, 1)->user_data = 1;
	T(submit_(r, 0));
	T(*r->cq_tail - *r->cq_head);
	T(syscall(SYS_futex, &word, FUTEX_WAKE, 1, NULL, NULL, 0));
	show_(r, 1);
	FUTEX(OP_FUTEX_WAIT, 1)->user_data = 2;
	FUTEX(OP_FUTEX_WAKE, 1)->user_data = 3;
	T(submit_(r, 2));
	sorted_(r, 2);
	struct { unsigned long long val, addr; unsigned flags, resv; } v[2] = { { 1, (uintptr_t)&word, 2 }, { 1, (uintptr_t)&other, 2 } };
	sqe_(r, OP_FUTEX_WAITV, 0, v, 2, 0)->user_data = 4;
	T(submit_(r, 0));
	T(syscall(SYS_futex, &other, FUTEX_WAKE, 1, NULL, NULL, 0));
	show_(r, 1);
	FUTEX(OP_FUTEX_WAIT, 1)->user_data = 5;
	T(submit_(r, 0));
	e = sqe_(r, IORING_OP_ASYNC_CANCEL, -1, (void *)5, 0, 0), e->user_data = 6;
	T(submit_(r, 2));
	sorted_(r, 2);
	T(syscall(SYS_futex, &word, FUTEX_WAKE, 1, NULL, NULL, 0));
	e = FUTEX(OP_FUTEX_WAIT, 1), e->addr3 = 0;
	T(one_(r, e));
	/* Children. */
	siginfo_t i = { 0 };
#define WAIT(id, opts) (e = sqe_(r, OP_WAITID, id, NULL, P_PID, (uintptr_t)&i), e->file_index = opts, e)
	T(one_(r, WAIT(1, WEXITED)));
	pid_t c = fork();
	if (!c) {
		usleep(30000);
		_exit(5);
	}
	WAIT(c, WEXITED)->user_data = 7;
	T(submit_(r, 0));
	T(*r->cq_tail - *r->cq_head);
	show_(r, 1);
	T(i.si_status);
	T(i.si_code);
	Y(i.si_pid == c);
	T(one_(r, WAIT(c, WEXITED)));
	T(one_(r, WAIT(c, 0)));
}

static void defer(void)
{
	struct ring *r = ring_(8, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
	int p[2];
	char b[8];
	pipe(p);
	sqe_(r, IORING_OP_READ, p[0], b, 8, 0)->user_data = 1;
	T(submit_(r, 0));
	T(write(p[1], "abc", 3));
	usleep(20000);
	T(*r->cq_tail - *r->cq_head);
	T(enter_(r->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0));
	show_(r, 1);
	if (!fork()) {
		sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0);
		T(submit_(r, 0));
		T(enter_(r->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0));
		_exit(0);
	}
	wait(NULL);
	r = ring_(8, IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG);
	sqe_(r, IORING_OP_READ, p[0], b, 8, 0)->user_data = 2;
	T(submit_(r, 0));
	T(write(p[1], "abc", 3));
	show_(r, 1);
}

static void thread(void)
{
	struct io_uring_params q = { .flags = IORING_SETUP_SQPOLL, .sq_thread_idle = 50 };
	struct ring *r = ring_with(8, q);
	struct io_uring_cqe c;
	int p[2];
	char b[8];
	pipe(p);
	for (int i = 0; i < 3; i++) {
		sqe_(r, IORING_OP_NOP, -1, NULL, 0, 0)->user_data = i;
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (*(volatile unsigned *)r->sq_flags & IORING_SQ_NEED_WAKEUP)
			enter_(r->fd, 0, 0, IORING_ENTER_SQ_WAKEUP, NULL, 0);
		show_(r, 1);
		usleep(100000);
	}
	Y(*r->sq_flags & IORING_SQ_NEED_WAKEUP);
	sqe_(r, IORING_OP_READ, p[0], b, 8, 0)->user_data = 4;
	T(enter_(r->fd, 1, 0, IORING_ENTER_SQ_WAKEUP, NULL, 0));
	usleep(20000);
	T(write(p[1], "abc", 3));
	show_(r, 1);
	S(b, 3);
	T(enter_(r->fd, 0, 0, IORING_ENTER_SQ_WAIT, NULL, 0));
	q = (struct io_uring_params){ .flags = IORING_SETUP_SQPOLL | IORING_SETUP_ATTACH_WQ, .wq_fd = r->fd };
	struct ring *s = ring_with(8, q);
	sqe_(s, IORING_OP_NOP, -1, NULL, 0, 0)->user_data = 5;
	T(enter_(s->fd, 1, 1, IORING_ENTER_SQ_WAKEUP | IORING_ENTER_GETEVENTS, NULL, 0));
	show_(s, 1);
	q.wq_fd = 0;
	T(setup_(8, &q));
	q.wq_fd = 99;
	T(setup_(8, &q));
	q = (struct io_uring_params){ .flags = IORING_SETUP_SQPOLL | IORING_SETUP_COOP_TASKRUN };
	T(setup_(8, &q));
	q = (struct io_uring_params){ .flags = IORING_SETUP_SQPOLL | IORING_SETUP_SQ_AFF, .sq_thread_cpu = 5000 };
	T(setup_(8, &q));
	int n = 0;
	DIR *d = opendir("/proc/self/task");
	while (readdir(d))
		n++;
	T(n);
	(void)c;
}

static void sysctls(void)
{
	struct io_uring_params p = { 0 };
	Y(access("/proc/sys/kernel/io_uring_disabled", R_OK) == 0);
	Y(access("/proc/sys/kernel/io_uring_group", R_OK) == 0);
	Y(setup_(8, &p) > 0);
}

static const struct check list[] = {
	CHECK(paths),
	CHECK(splices),
	CHECK(sockets),
	CHECK(buffers),
	CHECK(registered),
	CHECK(messages),
	CHECK(futexes),
	CHECK(defer),
	CHECK(thread),
	CHECK(sysctls),
};
MAIN(list)
