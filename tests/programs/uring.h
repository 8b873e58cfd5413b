/* Rings without a library, for the programs that check io_uring. */
#include <linux/io_uring.h>

/* Newer than the headers of some systems. */
#ifndef IORING_SETUP_NO_SQARRAY
#define IORING_SETUP_NO_SQARRAY (1U << 16)
#endif
#define OP_READ_MULTISHOT 49
#define OP_WAITID 50
#define OP_FUTEX_WAIT 51
#define OP_FUTEX_WAKE 52
#define OP_FUTEX_WAITV 53
#define OP_FIXED_FD_INSTALL 54
#define OP_FTRUNCATE 55
#define OP_BIND 56
#define OP_LISTEN 57

struct ring {
	int fd;
	struct io_uring_params p;
	char *rings, *sqes;
	size_t rings_len, sqes_len;
	unsigned *sq_head, *sq_tail, *sq_flags, *sq_dropped, *array, *cq_head, *cq_tail, *cq_overflow, *cq_flags, sq_mask, cq_mask;
	char *cqes;
	unsigned cqe_size, sqe_size;
};

static long setup_(unsigned n, struct io_uring_params *p) { return syscall(SYS_io_uring_setup, n, p); }
static long enter_(int fd, unsigned n, unsigned min, unsigned flags, const void *arg, size_t len)
{
	return syscall(SYS_io_uring_enter, fd, n, min, flags, arg, len);
}
static long register_(int fd, unsigned op, const void *arg, unsigned n) { return syscall(SYS_io_uring_register, fd, op, arg, n); }
__attribute__((unused)) static void nothing_(int s) { (void)s; }

__attribute__((unused)) static struct ring *ring_with(unsigned n, struct io_uring_params p)
{
	struct ring *r = calloc(1, sizeof *r);
	r->p = p;
	r->fd = setup_(n, &r->p);
	if (r->fd < 0) {
		say("ring", "failed: %s", strerrorname_np(errno));
		_exit(1);
	}
	struct io_uring_params *q = &r->p;
	r->cqe_size = q->flags & IORING_SETUP_CQE32 ? 32 : 16;
	r->sqe_size = q->flags & IORING_SETUP_SQE128 ? 128 : 64;
	r->rings_len = q->cq_off.cqes + q->cq_entries * r->cqe_size;
	if (q->sq_off.array + q->sq_entries * 4 > r->rings_len)
		r->rings_len = q->sq_off.array + q->sq_entries * 4;
	r->sqes_len = q->sq_entries * r->sqe_size;
	r->rings = mmap(NULL, r->rings_len, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQ_RING);
	r->sqes = mmap(NULL, r->sqes_len, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQES);
	if (r->rings == MAP_FAILED || r->sqes == MAP_FAILED) {
		say("ring", "not mapped: %s", strerrorname_np(errno));
		_exit(1);
	}
#define AT(part, word) (unsigned *)(r->rings + q->part.word)
	r->sq_head = AT(sq_off, head), r->sq_tail = AT(sq_off, tail), r->sq_flags = AT(sq_off, flags), r->sq_dropped = AT(sq_off, dropped);
	r->cq_head = AT(cq_off, head), r->cq_tail = AT(cq_off, tail), r->cq_overflow = AT(cq_off, overflow), r->cq_flags = AT(cq_off, flags);
	r->array = AT(sq_off, array), r->cqes = r->rings + q->cq_off.cqes;
	r->sq_mask = *AT(sq_off, ring_mask), r->cq_mask = *AT(cq_off, ring_mask);
	if (!(q->flags & IORING_SETUP_NO_SQARRAY))
		for (unsigned i = 0; i < q->sq_entries; i++)
			r->array[i] = i;
	return r;
}

__attribute__((unused)) static struct ring *ring_(unsigned n, unsigned flags)
{
	struct io_uring_params p = { .flags = flags };
	return ring_with(n, p);
}

__attribute__((unused)) static void unmap_(struct ring *r)
{
	munmap(r->rings, r->rings_len);
	munmap(r->sqes, r->sqes_len);
}

/* The next entry. */
__attribute__((unused)) static struct io_uring_sqe *sqe_(struct ring *r, int op, int fd, const void *addr, unsigned len, unsigned long long off)
{
	struct io_uring_sqe *e = (void *)(r->sqes + (*r->sq_tail & r->sq_mask) * r->sqe_size);
	memset(e, 0, r->sqe_size);
	e->opcode = op, e->fd = fd, e->addr = (uintptr_t)addr, e->len = len, e->off = off;
	__atomic_store_n(r->sq_tail, *r->sq_tail + 1, __ATOMIC_RELEASE);
	return e;
}

/* Submits all, and waits for so many. */
__attribute__((unused)) static long submit_(struct ring *r, unsigned min)
{
	unsigned n = *r->sq_tail - __atomic_load_n(r->sq_head, __ATOMIC_ACQUIRE);
	return enter_(r->fd, n, min, min ? IORING_ENTER_GETEVENTS : 0, NULL, 0);
}

/* Takes the next completion, waiting for it up to two seconds. */
__attribute__((unused)) static int take_(struct ring *r, struct io_uring_cqe *c)
{
	struct __kernel_timespec t = { 2, 0 };
	struct io_uring_getevents_arg g = { .ts = (uintptr_t)&t };
	if (__atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE) == *r->cq_head)
		enter_(r->fd, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &g, sizeof g);
	if (__atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE) == *r->cq_head)
		return 0;
	memcpy(c, r->cqes + (*r->cq_head & r->cq_mask) * r->cqe_size, sizeof *c);
	__atomic_store_n(r->cq_head, *r->cq_head + 1, __ATOMIC_RELEASE);
	return 1;
}

static void say_cqe(struct io_uring_cqe *c)
{
	if (c->res < 0)
		say("cqe", "%llu: -%s %x", c->user_data, strerrorname_np(-c->res) ?: "?", c->flags);
	else
		say("cqe", "%llu: %d %x", c->user_data, c->res, c->flags);
}

/* Takes and shows so many. */
__attribute__((unused)) static void show_(struct ring *r, int n)
{
	struct io_uring_cqe c;
	while (n--)
		if (take_(r, &c))
			say_cqe(&c);
		else
			say("cqe", "none");
}

/* The same, by their names. */
__attribute__((unused)) static void sorted_(struct ring *r, int n)
{
	struct io_uring_cqe c[64];
	int got = 0;
	while (got < n && take_(r, &c[got]))
		got++;
	for (int i = 0; i < got; i++)
		for (int j = i + 1; j < got; j++)
			if (c[j].user_data < c[i].user_data) {
				struct io_uring_cqe x = c[i];
				c[i] = c[j], c[j] = x;
			}
	for (int i = 0; i < got; i++)
		say_cqe(&c[i]);
	if (got < n)
		say("cqe", "%d are missing", n - got);
}

/* Submits what was filled in last and gives its result. */
__attribute__((unused)) static long one_(struct ring *r, struct io_uring_sqe *e)
{
	struct io_uring_cqe c = { 0 };
	(void)e;
	if (submit_(r, 1) < 0)
		return -1;
	if (!take_(r, &c))
		return -9999;
	if (c.res < 0) {
		errno = -c.res;
		return -1;
	}
	return c.res;
}
