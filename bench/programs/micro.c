// Small measurements of system calls and memory, from inside: a line "name nanoseconds" for each.
//
//   micro BUDGET_MS [FILE]
//
// Each repeats until a batch takes BUDGET_MS (those that use up memory have a fixed number), and tells the
// time of one repetition in the last batch. FILE is what is opened and closed.
#include "bench.h"

static const char *file = "/bin/true";

// By syscall(), not getpid(): the call site that cannot be patched in the easy way.
static void getpid_raw(long n) {
    long pid = getpid();
    for (long i = 0; i < n; i++) check(syscall(SYS_getpid) == pid, "getpid");
}

static void open_close(long n) {
    for (long i = 0; i < n; i++) {
        int fd = open(file, O_RDONLY);
        check(fd >= 0, file);
        close(fd);
    }
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

// Anonymous pages, one call each, none unmapped, none touched.
static void mmap_page(long n) {
    for (long i = 0; i < n; i++)
        check(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED,
              "mmap");
}

static void first_touch(long n) {
    volatile char *p = mmap(NULL, n * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(p != MAP_FAILED, "mmap");
    for (long i = 0; i < n; i++) p[i * 4096] = 1;
    munmap((void *)p, n * 4096);
}

static int to[2], from[2];

// One byte to another process and back.
static void ping_pong(long n) {
    char c = 0;
    for (long i = 0; i < n; i++) {
        check(write(to[1], &c, 1) == 1, "write");
        check(read(from[0], &c, 1) == 1, "read");
    }
}

static void line(const char *name, double ns) {
    printf("%s %.1f\n", name, ns);
    fflush(stdout);
}

static void repeated(const char *name, void (*f)(long)) { line(name, until(f)); }

static void fixed(const char *name, void (*f)(long), long n) {
    double start = now();
    f(n);
    line(name, (now() - start) / n);
}

int main(int argc, char **argv) {
    setenv("BENCH_BUDGET_MS", argc > 1 ? argv[1] : "20", 1);
    if (argc > 2) file = argv[2];
    repeated("getpid", getpid_raw);
    repeated("open+close", open_close);
    repeated("fork+wait", fork_wait);
    fixed("mmap 4 KB", mmap_page, 2000);
    fixed("first touch", first_touch, 4096);
    check(pipe(to) == 0 && pipe(from) == 0, "pipe");
    pid_t p = fork();
    check(p >= 0, "fork");
    if (p == 0) {
        char c;
        close(to[1]);
        while (read(to[0], &c, 1) == 1)
            if (write(from[1], &c, 1) != 1) break;
        _exit(0);
    }
    repeated("pipe ping-pong", ping_pong);
    close(to[1]);
    waitpid(p, NULL, 0);
    return 0;
}
