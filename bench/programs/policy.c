// What replacement policies do, in a container of 64 MB with 256 MB of swap:
//
//   gcc -O2 -o policy bench/programs/policy.c &&
//     cloister do --memory 64M --swap 256M --replacement lru --volume .:/b -- /b/policy
#include "bench.h"
#include <signal.h>

#define PAGE 4096L
#define MB (256L)

static unsigned long state = 88172645463325252UL;
static unsigned long next(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

// As a heap looks: words that differ, a third of each page.
static char *filled(long pages) {
    char *m = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(m != MAP_FAILED, "mmap");
    for (long i = 0; i < pages; i++) {
        unsigned long *p = (unsigned long *)(m + i * PAGE), x = i * 0x9e3779b97f4a7c15UL + 1;
        for (int w = 0; w < 512; w++) p[w] = w % 3 ? w : (x ^= x << 13, x ^= x >> 7, x);
    }
    return m;
}

static void touch(char *m, long page) {
    volatile char *p = m + page * PAGE;
    *p = (char)(*p + 1);
}

// Which page a place of the Zipf distribution (exponent 1) is: neighbours go together by 64 KB, as objects do.
static long *zipf(long pages, double **sums) {
    long runs = pages / 16, *order = malloc(runs * sizeof *order);
    *sums = malloc(runs * sizeof **sums);
    double sum = 0;
    for (long i = 0; i < runs; i++) order[i] = i, (*sums)[i] = sum += 1.0 / (i + 1);
    for (long i = runs - 1; i > 0; i--) {
        long j = next() % (i + 1), k = order[i];
        order[i] = order[j], order[j] = k;
    }
    return order;
}

static long zipf_page(long pages, long *order, double *sums) {
    long runs = pages / 16, low = 0, high = runs - 1;
    double x = (next() >> 11) * 0x1p-53 * sums[runs - 1];
    while (low < high) {
        long mid = (low + high) / 2;
        if (sums[mid] < x) low = mid + 1;
        else high = mid;
    }
    return order[low] * 16 + next() % 16;
}

static double mean_touch(long n, char *m, long pages, long *order, double *sums) {
    double start = now();
    for (long i = 0; i < n; i++) touch(m, order ? zipf_page(pages, order, sums) : (long)(next() % pages));
    return (now() - start) / n;
}

static void alone(const char *name, long pages, int by_zipf, long touches) {
    double *sums = 0;
    char *m = filled(pages);
    long *order = by_zipf ? zipf(pages, &sums) : 0, n = part(touches);
    mean_touch(n / 4, m, pages, order, sums);
    report(name, mean_touch(n, m, pages, order, sums), "ns");
    munmap(m, pages * PAGE);
}

// A process beside: it has so many pages, and then goes on as it is told.
enum beside { SLEEPS, SCANS, TOUCHES };
static pid_t beside(long pages, enum beside what, int adj) {
    int ready[2];
    check(!pipe(ready), "pipe");
    pid_t pid = fork();
    check(pid >= 0, "fork");
    if (!pid) {
        FILE *f = fopen("/proc/self/oom_score_adj", "w");
        if (f) fprintf(f, "%d", adj), fclose(f);
        char *m = filled(pages);
        check(write(ready[1], "", 1) == 1, "write");
        for (long i = 0;; i++) {
            if (what == SLEEPS) pause();
            touch(m, what == SCANS ? i % pages : (long)(next() % pages));
            if (i % 16 == 0) usleep(1000);
        }
    }
    char c;
    check(read(ready[0], &c, 1) == 1, "read");
    close(ready[0]), close(ready[1]);
    return pid;
}

static int by_value(const void *a, const void *b) {
    double d = *(const double *)a - *(const double *)b;
    return d < 0 ? -1 : d > 0;
}

// Requests of 256 touches, each millisecond, beside another process.
static void with(const char *name, long own, long other, enum beside what, int adj) {
    char full[128];
    long n = part(3000), warm = n / 3;
    double *t = malloc(n * sizeof *t);
    pid_t pid = beside(other, what, adj);
    char *m = filled(own);
    for (long i = -warm; i < n; i++) {
        double start = now();
        for (int k = 0; k < 256; k++) touch(m, next() % own);
        if (i >= 0) t[i] = now() - start;
        usleep(1000);
    }
    qsort(t, n, sizeof *t, by_value);
    snprintf(full, sizeof full, "%s: a request, median", name);
    report(full, t[n / 2] / 1000, "us");
    snprintf(full, sizeof full, "%s: 99 of 100", name);
    report(full, t[n * 99 / 100] / 1000, "us");
    kill(pid, SIGKILL);
    waitpid(pid, 0, 0);
    munmap(m, own * PAGE);
    free(t);
}

int main(void) {
    alone("1.2 times the limit, random, a touch", 77 * MB, 0, 100000);
    alone("1.5 times the limit, Zipf, a touch", 96 * MB, 1, 400000);
    with("40 MB beside 60 MB idle", 40 * MB, 60 * MB, SLEEPS, 0);
    with("40 MB beside a scan of 60 MB", 40 * MB, 60 * MB, SCANS, 0);
    with("40 MB beside 60 MB of less importance", 40 * MB, 60 * MB, TOUCHES, 500);
    return 0;
}
