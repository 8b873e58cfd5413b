// Calls of 1 to 16 threads of one process, and of as many processes: each of its own file and memory, so that
// whoever waits for another waits for a lock that they need not share (but for an address space's). The time is
// the wall clock's per call of all together: flat on one CPU, falling with the CPUs.
#include "bench.h"
#include <linux/futex.h>
#include <pthread.h>

#define MOST 16

// Of a thread or a process; in shared memory.
struct place {
    long calls;
    char pad[56];
};
static struct shared {
    volatile int ready, go, stop;
    struct place places[MOST];
} *shared;

struct own {
    char path[160], other[168];
    int file, pipe[2], word;
};

static void seek(struct own *o) { check(lseek(o->file, 0, SEEK_SET) == 0, "lseek"); }
static void page(struct own *o) {
    char b[4096];
    check(pread(o->file, b, sizeof b, 0) == sizeof b, "pread");
}
static void open_close(struct own *o) { close(open(o->path, O_RDONLY)); }
static void make(struct own *o) {
    close(open(o->other, O_CREAT | O_RDWR, 0600));
    check(unlink(o->other) == 0, "unlink");
}
static void map(struct own *o) {
    (void)o;
    char *m = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(m != MAP_FAILED, "mmap");
    m[0] = 1;
    munmap(m, 65536);
}
static void through(struct own *o) {
    char c = 0;
    check(write(o->pipe[1], &c, 1) == 1 && read(o->pipe[0], &c, 1) == 1, "pipe");
}
static void wake(struct own *o) { syscall(SYS_futex, &o->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0); }

static const struct {
    const char *name;
    void (*call)(struct own *);
} calls[] = {
    {"lseek", seek},         {"pread 4 KB", page},     {"open+close", open_close}, {"create+unlink", make},
    {"mmap+touch+munmap", map}, {"pipe write+read", through}, {"futex wake", wake},
};

static void (*call)(struct own *);
static const char *where = "/tmp";

static void *loop(void *arg) {
    long id = (long)arg;
    struct own o = {.word = 0};
    snprintf(o.path, sizeof o.path, "%s/contention%ld", where, id);
    snprintf(o.other, sizeof o.other, "%s.new", o.path);
    char b[4096] = {1};
    o.file = open(o.path, O_CREAT | O_RDWR, 0600);
    check(o.file >= 0 && write(o.file, b, sizeof b) == sizeof b && pipe(o.pipe) == 0, o.path);
    __atomic_add_fetch(&shared->ready, 1, __ATOMIC_SEQ_CST);
    while (!shared->go) usleep(100);
    long n = 0;
    // (One at least, however short the time and busy the machine.)
    do {
        call(&o);
        n++;
    } while (!shared->stop);
    shared->places[id].calls = n;
    close(o.file);
    close(o.pipe[0]);
    close(o.pipe[1]);
    unlink(o.path);
    return NULL;
}

static void measure(const char *name, long n, int processes) {
    memset((void *)shared, 0, sizeof *shared);
    pthread_t threads[MOST];
    fflush(stdout);
    for (long i = 0; i < n; i++) {
        if (!processes) {
            check(pthread_create(&threads[i], NULL, loop, (void *)i) == 0, "pthread_create");
            continue;
        }
        pid_t p = fork();
        check(p >= 0, "fork");
        if (p == 0) {
            loop((void *)i);
            _exit(0);
        }
    }
    // All of them, or the calls of those that are there would be told as the calls of n.
    double limit = now() + 10e9;
    while (shared->ready < n && now() < limit) usleep(100);
    double start = now();
    shared->go = 1;
    usleep((useconds_t)(budget() / 1000));
    shared->stop = 1;
    double took = now() - start;
    int whole = shared->ready == n;
    for (long i = 0; i < n; i++) {
        int status = 0;
        if (processes)
            check(wait(&status) > 0, "wait");
        else
            pthread_join(threads[i], NULL);
        whole &= status == 0;
    }
    long all = 0;
    for (long i = 0; i < n; i++) all += shared->places[i].calls;
    char line[80];
    snprintf(line, sizeof line, "%s, %s@%ld", name, processes ? "processes" : "threads", n);
    if (whole)
        report(line, took / all, "ns");
    else
        failed(line, "not all of them ran");
}

int main(int argc, char **argv) {
    if (argc > 1) where = argv[1];
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(shared != MAP_FAILED, "mmap");
    for (unsigned c = 0; c < sizeof calls / sizeof *calls; c++) {
        call = calls[c].call;
        for (int processes = 0; processes < 2; processes++)
            for (long n = 1; n <= MOST; n *= 2) measure(calls[c].name, n, processes);
    }
}
