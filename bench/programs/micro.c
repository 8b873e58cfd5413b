// Small measurements of system calls and memory, from inside: a line "name nanoseconds" for each.
//
//   micro BUDGET_MS [FILE]
//
// Each repeats until a batch takes BUDGET_MS (those that use up memory have a fixed number), and tells the
// time of one repetition in the last batch. FILE is what is opened and closed.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *file = "/bin/true";

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void check(int ok, const char *what) {
    if (!ok) {
        perror(what);
        exit(1);
    }
}

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

static void report(const char *name, double ns) {
    printf("%s %.1f\n", name, ns);
    fflush(stdout);
}

static double run(void (*f)(long), long n) {
    double start = now();
    f(n);
    return now() - start;
}

static void until(const char *name, void (*f)(long), double budget) {
    for (long n = 1;;) {
        double took = run(f, n);
        if (took >= budget) {
            report(name, took / n);
            return;
        }
        double grow = took > 0 ? 1.2 * budget / took : 10;
        n = (long)(n * (grow > 10 ? 10 : grow)) + 1;
    }
}

static void fixed(const char *name, void (*f)(long), long n) { report(name, run(f, n) / n); }

int main(int argc, char **argv) {
    double budget = (argc > 1 ? atof(argv[1]) : 20) * 1e6;
    if (argc > 2) file = argv[2];
    until("getpid", getpid_raw, budget);
    until("open+close", open_close, budget);
    until("fork+wait", fork_wait, budget);
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
    until("pipe ping-pong", ping_pong, budget);
    close(to[1]);
    waitpid(p, NULL, 0);
    return 0;
}
