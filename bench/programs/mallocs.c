// malloc, never freed: blocks of 4 KB to 1 MB, touched and not.
#include "bench.h"

static size_t size;
static int touched;

// What is touched is bounded: it must fit into memory.
#define MOST (512L << 20)

static void blocks(void) {
    long n = part(20000);
    if (touched && n * (long)size > MOST * setting("BENCH_PART", 1)) n = MOST * setting("BENCH_PART", 1) / size;
    if (n < 1) n = 1;
    double start = now();
    for (long i = 0; i < n; i++) {
        volatile char *p = malloc(size);
        check(p != NULL, "malloc");
        if (touched)
            for (size_t o = 0; o < size; o += 4096) p[o] = 1;
    }
    char name[64];
    snprintf(name, sizeof name, "%s@%zu", touched ? "malloc, touched" : "malloc, untouched", size);
    report(name, (now() - start) / n, "ns");
}

int main(void) {
    static const size_t sizes[] = {4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20};
    for (touched = 0; touched < 2; touched++)
        for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            size = sizes[i];
            if (!in_child(blocks)) {
                char name[64];
                snprintf(name, sizeof name, "%s@%zu", touched ? "malloc, touched" : "malloc, untouched", size);
                failed(name, "the process ended");
            }
        }
    return 0;
}
