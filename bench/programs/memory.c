// Memory and processes: memory PROGRAM FILE. PROGRAM is what vfork and exec start, FILE what is mapped.
#include "bench.h"

#define PAGE 4096L
#define COW_PAGES 4096
static char *program;
static int file;

static char *map(size_t size) {
    char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(p != MAP_FAILED, "mmap");
    return p;
}

static void touch(volatile char *p, long pages) {
    for (long i = 0; i < pages; i++) p[i * PAGE] = 1;
}

// The mean of several passes of `pages` pages each, first touches only.
static void first_touch(void) {
    long pages = part((64L << 20) / PAGE);
    double sum = 0;
    for (int i = 0; i < 3; i++) {
        char *p = map(pages * PAGE);
        double start = now();
        touch(p, pages);
        // The first pass is the warm-up.
        if (i > 0) sum += now() - start;
        munmap(p, pages * PAGE);
    }
    rounds(3 * pages);
    report("first touch of a page, 64 MB", sum / 2 / pages, "ns");
}

static void fork_wait(long n) {
    for (long i = 0; i < n; i++) {
        int status = -1;
        pid_t p = fork();
        check(p >= 0, "fork");
        if (p == 0) _exit(0);
        check(waitpid(p, &status, 0) == p && status == 0, "waitpid");
    }
}

static pid_t start(void) {
    char *args[] = {program, NULL}, *env[] = {NULL};
    pid_t p = vfork();
    if (p == 0) {
        execve(program, args, env);
        _exit(1);
    }
    return p;
}

static void vfork_exec(long n) {
    for (long i = 0; i < n; i++) {
        int status = -1;
        pid_t p = start();
        check(p > 0, "vfork");
        check(waitpid(p, &status, 0) == p && status == 0, program);
    }
}

// A child writes to pages that it shares with its parent.
static void copy_on_write(void) {
    long pages = part(COW_PAGES);
    char *p = map(pages * PAGE);
    touch(p, pages);
    int to[2];
    check(pipe(to) == 0, "pipe");
    double sum = 0;
    for (int i = 0; i < 3; i++) {
        pid_t c = fork();
        check(c >= 0, "fork");
        if (c == 0) {
            double start = now();
            touch(p, pages);
            double took = now() - start;
            _exit(write(to[1], &took, sizeof took) != sizeof took);
        }
        double took = 0;
        check(read(to[0], &took, sizeof took) == sizeof took, "read");
        waitpid(c, NULL, 0);
        sum += took;
    }
    rounds(3 * pages);
    report("copy-on-write of a page", sum / 3 / pages, "ns");
    munmap(p, pages * PAGE);
}

#define RUN (64L << 10)

static void map_unmap(long n) {
    for (long i = 0; i < n; i++) munmap(map(RUN), RUN);
}

static void map_touch_unmap(long n) {
    for (long i = 0; i < n; i++) {
        char *p = map(RUN);
        touch(p, RUN / PAGE);
        munmap(p, RUN);
    }
}

// Never unmapped: the child ends.
static void map_anonymous(void) {
    long n = part(20000);
    double start = now();
    for (long i = 0; i < n; i++) map(PAGE);
    report("mmap anonymous 4 KB, never unmapped", (now() - start) / n, "ns");
    rounds(n);
}

static void map_file(void) {
    long n = part(20000);
    double start = now();
    for (long i = 0; i < n; i++)
        check(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, file, 0) != MAP_FAILED, "mmap");
    report("mmap private file 4 KB, never unmapped", (now() - start) / n, "ns");
    rounds(n);
}

// Every second page made read-only: each call splits the mapping.
static void split(void) {
    long n = part(5000);
    char *p = map(2 * n * PAGE);
    touch(p, 2 * n);
    double start = now();
    for (long i = 0; i < n; i++) check(mprotect(p + 2 * i * PAGE, PAGE, PROT_READ) == 0, "mprotect");
    report("mprotect that splits", (now() - start) / n, "ns");
    rounds(n);
}

static void grow_heap(long n) {
    for (long i = 0; i < n; i++) {
        check(sbrk(RUN) != (void *)-1, "sbrk");
        sbrk(-RUN);
    }
}

static void each(const char *name, void (*f)(void)) {
    if (!wanted(name)) return;
    double start = now();
    do {
        if (!in_child(f)) failed(name, "the process ended");
        // Once is not enough for a profile.
    } while (getenv("BENCH_LINE") && now() - start < 2 * budget());
}

int main(int argc, char **argv) {
    check(argc > 2, "memory PROGRAM FILE");
    program = argv[1];
    file = open(argv[2], O_RDONLY);
    check(file >= 0, argv[2]);
    us("fork+wait", fork_wait);
    us("vfork+exec+wait", vfork_exec);
    ns("mmap+munmap 64 KB", map_unmap);
    ns("mmap, touch 16 pages, munmap", map_touch_unmap);
    ns("sbrk 64 KB and back", grow_heap);
    each("first touch of a page, 64 MB", first_touch);
    each("copy-on-write of a page", copy_on_write);
    each("mmap anonymous 4 KB, never unmapped", map_anonymous);
    each("mmap private file 4 KB, never unmapped", map_file);
    each("mprotect that splits", split);
    return 0;
}
