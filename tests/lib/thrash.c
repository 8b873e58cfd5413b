/* Threads that use more memory than there is, each its own pages among those of the others, and look
 * whether what they wrote is still there.
 *
 *   thrash SEED THREADS MB ROUNDS
 *
 * Prints "whole", or what is wrong. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096
static unsigned char *mem;
static uint32_t *want;
static size_t pages, threads, rounds;
static uint64_t seed;

static uint64_t next(uint64_t *s) {
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

static void check(size_t i) {
    uint32_t *p = (uint32_t *)(mem + i * PAGE);
    if (p[0] != want[i] || p[511] != want[i] * 3 || p[1023] != want[i] * 7) {
        printf("page %zu: %x %x %x for %x\n", i, p[0], p[511], p[1023], want[i]);
        exit(1);
    }
}

static void put(size_t i, uint32_t v) {
    uint32_t *p = (uint32_t *)(mem + i * PAGE);
    p[0] = v;
    p[511] = v * 3;
    p[1023] = v * 7;
    want[i] = v;
}

static void *work(void *arg) {
    size_t me = (size_t)arg;
    uint64_t s = seed * 0x9e3779b97f4a7c15ULL + me * 77 + 1;
    int p[2];
    if (pipe(p)) return 0;
    for (int i = 0; i < 10; i++) next(&s);
    for (size_t r = 0; r < rounds; r++) {
        size_t i = next(&s) % (pages / threads) * threads + me;
        check(i);
        put(i, (uint32_t)next(&s));
        if (next(&s) % 16 == 0) {
            /* By the kernel: from one page to another. */
            size_t j = next(&s) % (pages / threads) * threads + me;
            check(j);
            if (write(p[1], mem + i * PAGE, PAGE) != PAGE || read(p[0], mem + j * PAGE, PAGE) != PAGE) {
                perror("pipe");
                exit(1);
            }
            want[j] = want[i];
            check(j);
        }
    }
    close(p[0]), close(p[1]);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    seed = strtoull(argv[1], 0, 10);
    threads = atol(argv[2]);
    pages = atol(argv[3]) * 256UL;
    rounds = atol(argv[4]);
    mem = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
    want = calloc(pages, sizeof *want);
    if (mem == MAP_FAILED || !want) return 1;
    pthread_t t[64];
    for (size_t i = 0; i < threads; i++) pthread_create(&t[i], 0, work, (void *)i);
    for (size_t i = 0; i < threads; i++) pthread_join(t[i], 0);
    for (size_t i = 0; i < pages; i++) check(i);
    puts("whole");
}
