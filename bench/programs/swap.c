// Memory that is swapped out and comes back. For a sandbox with swap:
//
//   gcc -O2 -o swap bench/programs/swap.c && cloister do --memory 64M --swap 256M --volume .:/b -- /b/swap
#include "bench.h"

#define PAGE 4096L
// As a heap looks: words that differ, a third of each page.
static void fill(char *at, long pages) {
    for (long i = 0; i < pages; i++) {
        unsigned long *p = (unsigned long *)(at + i * PAGE), x = i * 0x9e3779b97f4a7c15UL + 1;
        for (int w = 0; w < 512; w++) p[w] = w % 3 ? w : (x ^= x << 13, x ^= x >> 7, x);
    }
}

static int by_value(const void *a, const void *b) {
    double d = *(const double *)a - *(const double *)b;
    return d < 0 ? -1 : d > 0;
}

static void latencies(const char *name, double *t, long n) {
    char full[96];
    qsort(t, n, sizeof *t, by_value);
    snprintf(full, sizeof full, "%s, median", name);
    report(full, t[n / 2], "ns");
    snprintf(full, sizeof full, "%s, 99 of 100", name);
    report(full, t[n * 99 / 100], "ns");
}

static char *map(long pages) {
    char *m = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(m != MAP_FAILED, "mmap");
    return m;
}

int main(void) {
    // Out and in by order.
    long pages = part(8192);
    char *m = map(pages);
    double *t = malloc(sizeof *t * 200000);
    fill(m, pages);
    double start = now();
    if (madvise(m, pages * PAGE, MADV_PAGEOUT)) {
        failed("out, a page", strerror(errno));
        return 0;
    }
    report("out, a page", (now() - start) / pages, "ns");
    for (long i = 0; i < pages; i++) {
        volatile char *p = m + (i * 5167 % pages) * PAGE;
        double a = now();
        (void)*p;
        t[i] = now() - a;
    }
    latencies("in, a page", t, pages);
    munmap(m, pages * PAGE);
    // More than there is: 1.2 times 64 MB.
    pages = part(19660);
    m = map(pages);
    fill(m, pages);
    unsigned long x = 88172645463325252UL;
    long n = part(200000);
    start = now();
    for (long i = 0; i < n; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        volatile char *p = m + x % pages * PAGE;
        double a = now();
        *p = (char)(*p + 1);
        t[i] = now() - a;
    }
    report("1.2 times the limit, random, a touch", (now() - start) / n, "ns");
    latencies("of these", t, n);
    return 0;
}
