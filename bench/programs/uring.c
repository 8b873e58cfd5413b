// io_uring: requests that do nothing, and reads of a file, one or 32 for each call.
#include "bench.h"
#include <linux/io_uring.h>

#define BATCH 32

static int ring, file;
static unsigned *sq_tail, *cq_head, *cq_tail, mask;
static struct io_uring_sqe *sqes;
static char buffer[BATCH][4096];

static void set_up(void) {
    struct io_uring_params p = {0};
    ring = syscall(SYS_io_uring_setup, BATCH, &p);
    check(ring >= 0, "io_uring_setup");
    size_t len = p.sq_off.array + p.sq_entries * 4;
    char *rings = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    sqes = mmap(NULL, p.sq_entries * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    check(rings != MAP_FAILED && sqes != MAP_FAILED, "mmap");
    sq_tail = (void *)(rings + p.sq_off.tail);
    cq_head = (void *)(rings + p.cq_off.head), cq_tail = (void *)(rings + p.cq_off.tail);
    mask = p.sq_entries - 1;
    for (unsigned i = 0; i < p.sq_entries; i++) ((unsigned *)(rings + p.sq_off.array))[i] = i;
    file = open("/tmp/uring-bench", O_CREAT | O_TRUNC | O_RDWR, 0600);
    check(file >= 0 && write(file, buffer, sizeof buffer) == sizeof buffer, "file");
}

static void batch(int op, int n) {
    for (int i = 0; i < n; i++) {
        struct io_uring_sqe *e = &sqes[(*sq_tail + i) & mask];
        *e = (struct io_uring_sqe){.opcode = op, .fd = file};
        if (op == IORING_OP_READ) e->addr = (unsigned long)buffer[i], e->len = 4096, e->off = i * 4096;
    }
    __atomic_store_n(sq_tail, *sq_tail + n, __ATOMIC_RELEASE);
    check(syscall(SYS_io_uring_enter, ring, n, n, IORING_ENTER_GETEVENTS, NULL, 0) == n, "io_uring_enter");
    unsigned tail = __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE);
    check(tail - *cq_head == (unsigned)n, "completions");
    __atomic_store_n(cq_head, tail, __ATOMIC_RELEASE);
}

static void nops(long n) {
    for (long i = 0; i < n; i++) batch(IORING_OP_NOP, 1);
}
static void nops32(long n) {
    for (long i = 0; i < n; i++) batch(IORING_OP_NOP, BATCH);
}
static void reads(long n) {
    for (long i = 0; i < n; i++) batch(IORING_OP_READ, 1);
}
static void reads32(long n) {
    for (long i = 0; i < n; i++) batch(IORING_OP_READ, BATCH);
}

int main(void) {
    set_up();
    us("io_uring nop", nops);
    us("io_uring 32 nops", nops32);
    us("io_uring read 4 KB", reads);
    us("io_uring 32 reads of 4 KB", reads32);
}
